-- remember.lua stores the answer to a request for 48 hours, for recall.lua. It needs the locals request and issued, the
-- sequence. The last two arguments of the script are '"DATE" "TEMPLATE"' and KEY.
local text = ARGV[1] .. ' ' .. ARGV[#ARGV - 1] .. ' ' .. string.format('%.0f', issued) .. ' ' .. ARGV[#ARGV]
redis.call('SET', request, text, 'EX', 48 * 60 * 60)
