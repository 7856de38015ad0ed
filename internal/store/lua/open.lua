-- open: create the period's counter, or lift the one that is there, and issue numbers from it. It is safe in any order and any
-- number of times: it applies every rule anew and never lowers a counter.
--
-- KEYS  1 counter, 2 record; then the lock, if it is on this server; then a request (see once.lua) or nothing
-- ARGV  1 to 5 as in rules.lua
--       6  n        how many numbers, at least 0
--       7  highWater  the greatest sequence of the period that the caller has seen, 0 if none
--       8  base     the sequence before the first that a period has, at most the limit
--       9  floor    the highest sequence that may have been used, at most the limit; "" if nothing tells
--      10  checked  when the caller saw that the counter was missing, before it asked for the lock or with it: milliseconds by
--                   the server's clock. Or what an operator wants, who needs no lock: "raise" replaces a record that lies in the future, "takeover" also
--                   one of another calendar
--      11  lease    the lock's expiry, milliseconds: open is refused once it has passed since checked
--      12  held     what the caller's lock holds, which open gives back; "" if it is elsewhere, or if there is none
--     with a ledger:
--      13  token    of the caller's claim, which open consumes
--      14  id       replication ID that came with it
--      15  after    what the ledger answered: the block is after+1 ...
--      16  upto     ... to upto, at most 10^15
--     last, for a request:
--          printed  the date and the template, then the key, as in once.lua
--
-- Reply: an integer, the last of the n numbers issued (for n = 0 where the counter stands); or
--   "there" LAST      the same, where another caller had opened the period meanwhile: the numbers follow the counter, as in take
--   "lifted" FROM LAST  the same, and sequences were skipped: where the counter stood before, -1 if it was lost, and that integer
-- or a status of rules.lua or
--   "late"            the lock has expired since checked, or the server's clock went back; or the claim has expired, the
--                     replication ID is another, or the block is used up: it must not be installed then
--   "lost" HELD       the counter was there once, and there is no floor; what it holds now, "" if it is gone
--   "exhausted" LAST  fewer than n numbers are left above counter and floor; the last sequence used, text. Only here the
--                     counter may be written: the period is opened at that sequence if it was not open yet. Then FROM, as above,
--                     and the last sequence used or skipped, integers.
--   "once" ANSWER     see once.lua
local time = redis.call('TIME')
local lock = ARGV[12] ~= '' and KEYS[3]
local request = KEYS[lock and 4 or 3]
local answered = request and recall(request, time)
if answered then return answered end
local n, highWater, limit, expires = ARGV[6] + 0, ARGV[7] + 0, ARGV[4] + 0, ARGV[5]
local counter, record = KEYS[1], KEYS[2]
local checked, lease = tonumber(ARGV[10]), ARGV[11] + 0 -- checked is nil for an operator
local p, refusal = periodRules(time, counter, record, highWater, ARGV[10])
if not p then return refusal end
local ms = p.milliseconds
if checked and (ms < checked or ms >= checked + lease) then return p.answer('late') end

local floor = tonumber(ARGV[9])
-- The second look, under the lock: what is open by now is not lifted, unless a floor or a ledger has been asked since.
local there = checked and p.state == 'same' and not p.lost and not floor and not p.id
local base = there and 0 or ARGV[8] + 0
local from = p.lost and -1 or math.max(p.last or 0, base)
local used = math.max(p.last or 0, base, floor or 0, highWater)
local upto
if p.unrecoverable and not floor then return p.answer('lost', p.held or '') end
if p.id then
  local token, past = string.match(redis.call('HGET', record, 'claim') or '', '^(%S+) (%d+)$')
  if token ~= ARGV[13] or ms >= tonumber(past) or p.id ~= ARGV[14] then return p.answer('late') end
  p.permitCounter(counter, p.held, expires)
  redis.call('HDEL', record, 'claim')
  local after = ARGV[15] + 0
  upto = ARGV[16] + 0
  if not p.intact or after ~= p.ceiling then -- a block that follows on without a gap continues the counter
    used = math.max(used, after)
  end
  -- The rest of the block before is not thrown away.
  if used + n > limit and p.intact and p.last < p.ceiling and checked then
    return p.answer('exhausted', p.held)
  end
  if used + n > upto and used + n <= limit then return p.answer('late') end
  if used > limit then -- of another template's, or set aside in vain
    used = math.max(limit, p.last or 0)
    upto = used
  end
end

local enough = n == 0 or used + n <= limit
local issued = enough and used + n or used
-- A counter of 16 digits and more stays as it is.
local text = p.last == 1e15 and p.held or string.format('%.0f', issued)
p.permitCounter(counter, p.held, expires)
if request and n > 0 then p.permit(request, false) end
if p.id then
  p.enter('ceiling', string.format('%.0f', upto), 'counterCopy', text, 'replID', p.id)
else
  p.enter()
end
p.write(counter, p.held, text, expires)
if lock and redis.pcall('GET', lock) == ARGV[12] then redis.pcall('DEL', lock) end
if not enough then return p.answer('exhausted', text, from, math.min(used, 1e15)) end
if request and n > 0 then remember(request, issued) end
if there then return p.answer('there', '', 0, issued) end
if used > from then return p.answer('lifted', '', from, math.min(issued, 1e15)) end
return math.min(issued, 1e15)
