-- time.lua reads the server's clock into the local time. Some servers' errors do not name the command that was refused,
-- so the script returns an error that does.
local time = redis.pcall('TIME')
if time.err then return {err = 'TIME is refused: ' .. time.err} end
