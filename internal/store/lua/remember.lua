-- remember.lua stores the answer to a request for 48 hours, in the form that recall.lua describes. It needs the locals
-- request, the key of the answer, and issued, the sequence. The script's last two arguments are '"DATE" "TEMPLATE"' and
-- KEY.
local text = ARGV[1] .. ' ' .. ARGV[#ARGV - 1] .. ' ' .. string.format('%.0f', issued) .. ' ' .. ARGV[#ARGV]
redis.call('SET', request, text, 'EX', 48 * 60 * 60)
