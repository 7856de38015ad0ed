-- remember.lua keeps for 48 hours what a request is answered, for recall.lua. Before it are the locals request and issued, the sequence.
-- The last two arguments of the script are '"DATE" "TEMPLATE"' and KEY.
local text = ARGV[1] .. ' ' .. ARGV[#ARGV - 1] .. ' ' .. string.format('%.0f', issued) .. ' ' .. ARGV[#ARGV]
redis.call('SET', request, text, 'EX', 48 * 60 * 60)
