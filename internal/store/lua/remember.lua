-- remember.lua stores the answer to a request, in the form that recall.lua describes. The including script must define
-- two locals: request, the key of the answer, and issued, the sequence. The last three arguments of the script are the
-- quoted date and template (with WithSharedCounter, also the quoted type), KEY, and the lifetime of the answer in
-- milliseconds.
local text = ARGV[1] .. ' ' .. ARGV[#ARGV - 2] .. ' ' .. string.format('%.0f', issued) .. ' ' .. ARGV[#ARGV - 1]
redis.call('SET', request, text, 'PX', ARGV[#ARGV])
