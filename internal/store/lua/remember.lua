-- remember.lua stores the answer to a request, in the form that recall.lua describes. It needs the locals request, the
-- key of the answer, and issued, the sequence. The script's last three arguments are '"DATE" "TEMPLATE"', KEY, and how
-- long the answer is stored, in milliseconds.
local text = ARGV[1] .. ' ' .. ARGV[#ARGV - 2] .. ' ' .. string.format('%.0f', issued) .. ' ' .. ARGV[#ARGV - 1]
redis.call('SET', request, text, 'PX', ARGV[#ARGV])
