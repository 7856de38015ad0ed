-- open: create the period's counter, or lift the one that is there, and issue numbers from it.
--
-- It is safe in any order and any number of times: it judges everything anew and never lowers a counter.
--
-- KEYS and ARGV 1 to 7 as in guard.lua; n is at least 0.
-- ARGV  8  base     the sequence before the first that a period has, at most the limit
--       9  floor    the highest sequence that may have been used, at most the limit; '' if nothing tells
--      10  checked  when the caller saw, under the lock, that the counter was missing: server's time, milliseconds;
--                   '' for an operator's Raise, which needs no lock and replaces a record that lies in the future
--      11  lease    the lock's expiry, milliseconds: open is refused once it has passed since checked
--      12  token    from here on with a ledger: of the caller's claim, which open consumes
--      13  reign    that came with it
--      14  after    what the ledger answered: the block is after+1 ...
--      15  upto     ... to upto, at most 10^15
--
-- Reply: an integer, the last of the n numbers issued (for n = 0 where the counter stands); or, with no counter written, a
-- status as in guard.lua or
--   "late"       the lock has expired since checked, or the server's clock went back; or the claim has expired, the
--                server's reign is another, or the block is used up: it must not be installed then
--   "future"     the server's clock went back; detail: the period entered
--   "lost"       the counter was there once, and there is no floor; detail: what it holds now
--   "exhausted"  fewer than n numbers are left above counter and floor; detail: the last sequence used. Here the period
--                is opened at that sequence if it was not yet.
local raise = ARGV[10] == ''
local ms = milliseconds()
if not raise and (ms < tonumber(ARGV[10]) or ms >= tonumber(ARGV[10]) + tonumber(ARGV[11])) then
  return answer('late', '')
end
if stands == 'future' and not raise then
  return answer('future', entered)
end

local n = tonumber(ARGV[1])
local limit = tonumber(ARGV[5])
local floor = tonumber(ARGV[9])
local used = math.max(last or 0, tonumber(ARGV[8]), floor or 0, mark)
local upto
if untold and not floor then
  return answer('lost', held or '')
end
if reign then
  local token, past = string.match(redis.call('HGET', KEYS[2], 'claim') or '', '^(%S+) (%d+)$')
  if token ~= ARGV[12] or ms >= tonumber(past) or reign ~= ARGV[13] then
    return answer('late', '')
  end
  lifetime(KEYS[1], ARGV[7])
  redis.call('HDEL', KEYS[2], 'claim')
  local after = tonumber(ARGV[14])
  upto = tonumber(ARGV[15])
  if not intact or after ~= ceiling then -- a block that follows on without a gap continues the counter
    used = math.max(used, after)
  end
  if used + n > limit and intact and last < ceiling and not raise then -- what is left of the block before is not thrown away
    return answer('exhausted', held)
  end
  if used + n > upto and used + n <= limit then
    return answer('late', '')
  end
  if used > limit then -- of another template's, or set aside in vain
    used = math.max(limit, last or 0)
    upto = used
  end
end

local issued = used + n
local enough = n == 0 or issued <= limit
if not enough then
  issued = used
end
issued = last == 1e15 and held or string.format('%.0f', issued) -- a counter of 16 digits and more stays as it is
lifetime(KEYS[1], ARGV[7])
permit(KEYS[1], held)
if KEYS[3] and n > 0 then
  permit(KEYS[3], false)
end
if reign then
  enter('ceiling', string.format('%.0f', upto), 'copy', issued, 'reign', reign)
else
  enter()
end
if issued ~= held then
  redis.call('SET', KEYS[1], issued, 'KEEPTTL')
end
lifetime(KEYS[1], ARGV[7])
if not enough then
  return answer('exhausted', issued)
end
if KEYS[3] and n > 0 then
  redis.call('SET', KEYS[3], ARGV[2] .. ' ' .. printed .. ' ' .. issued, 'EX', 48 * 60 * 60)
end
return math.min(tonumber(issued), 1e15)
