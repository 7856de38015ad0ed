-- open: create the period's counter, or lift an existing one, and issue numbers from it. However late or often it runs,
-- it does no harm: it applies every rule anew and never lowers a counter.
--
-- KEYS  1 counter, 2 record; the lock may follow, if it is on this server; then a request (see recall.lua) may follow
-- ARGV  1 to 5  as in rules.lua
--       6  n        how many numbers, at least 0
--       7  highWater  the greatest sequence of the period that the caller has seen, 0 if none
--       8  base     the sequence before the period's first, at most the limit; it counts only if nothing was used. 0 if
--                   the floor or the ledger says that something below it was used
--       9  floor    the highest sequence that may have been used, at most 10^15-1; "" without a floor
--      10  checked  when the caller saw that the counter was missing, either before it asked for the lock or while it
--                   held the lock, milliseconds by the server's clock. An operator, who needs no lock, sends a purpose
--                   instead: "raise" replaces a record that lies in the future, "takeover" also one of another time
--                   zone or day start. If " keep" follows the purpose, a series whose last period has a ledger is a
--                   conflict, whatever the caller's period.
--      11  lease    how long after checked the script may open, milliseconds: what remained of the lock's expiry
--      12  held     content of the caller's lock, which open releases; "" if the lock is elsewhere or there is none
--     with a ledger:
--      13  token    of the caller's claim, which open consumes
--      14  id       replication ID that came with the claim
--      15  after    the ledger's answer: the block is after+1 ...
--      16  upto     ... to upto, at most 10^15
--     for a request, at the end:
--          printed  the date and the template, with WithSharedCounter also the type, as in recall.lua
--          key      fingerprint of the key that hides the sequence, or "plain"
--          life     lifetime of the answer, milliseconds
--
-- Reply: an integer, the last of the n numbers issued (if n is 0, the position of the counter); or
--   "there" "" 0 LAST      the same as LAST, but another caller had already opened the period: as in take, the numbers
--                          follow the counter
--   "lifted" "" FROM LAST  the same as LAST, but sequences were skipped. FROM is the position of the counter before, -1
--                          if it was lost.
-- or a status of rules.lua or
--   "late" MIXED      it is too late to open: lease has passed since checked, the server's clock went back, the claim
--                     has expired, the replication ID has changed, or the block has too few numbers left. MIXED is
--                     "mixed" if callers without a ledger may issue numbers of the period, else "".
--   "lost" HELD       the counter once existed, and there is no floor; HELD is its content now, "" if it is gone
--   "exhausted" LAST FROM UPTO  fewer than n numbers are left above counter and floor. LAST is the last sequence used,
--                     as text. The script may still have written the counter: it opens the period at LAST if it was not
--                     open. FROM is as above, and UPTO is the last sequence used or skipped, integers.
--   "once" ANSWER     see recall.lua
--include time
local id
local lock = ARGV[12] ~= '' and KEYS[3]
local request = KEYS[lock and 4 or 3]
if request then
  --include recall
end
local counter, record, highWater, purpose = KEYS[1], KEYS[2], ARGV[7] + 0, string.match(ARGV[10], '^%w+')
--include rules
if purpose ~= ARGV[10] and string.find(entered or '', ' ledger', 1, true) then return answer('conflict', entered) end
--include writing
local n, limit, expires = ARGV[6] + 0, ARGV[4] + 0, ARGV[5]
local checked, lease = tonumber(ARGV[10]), ARGV[11] + 0 -- checked is nil for an operator
local function late()
  return answer('late', entered and not string.find(entered, ' ledger', 1, true) and 'mixed' or nil)
end
if checked and (ms < checked or ms >= checked + lease) then return late() end

local floor = tonumber(ARGV[9])
-- This is the second look, under the lock. If the period has been opened meanwhile, it is not lifted, unless a floor or
-- a ledger was asked.
local there = checked and state == 'same' and not lost and not floor and not id
-- A start counts only if nothing was used. A lost counter is not restored below the period's own start.
local base = unused and ARGV[8] + 0 or lost and baseOf(label) or 0
-- With a ledger, the record's copy may show a loss that the caller did not see.
local behind = operator and ledger and label == enteredLabel and (tonumber(kept[8]) or 0) > (last or 0)
local from = (lost or behind) and -1 or math.max(last or 0, base)
local used = math.max(last or 0, base, floor or 0, highWater)
local upto
if unrecoverable and not floor then return answer('lost', held or '') end
if id then
  local token, ends = string.match(redis.call('HGET', record, 'claim') or '', '^(%S+) (%-?%d+)$')
  if token ~= ARGV[13] or ms >= tonumber(ends) or id ~= ARGV[14] then return late() end
  permitCounter(counter, held, expires)
  redis.call('HDEL', record, 'claim')
  local after = ARGV[15] + 0
  upto = ARGV[16] + 0
  if not intact or after ~= ceiling then -- otherwise the block continues the previous one, and the counter goes on
    used = math.max(used, after)
  end
  -- What remains of the previous block is not skipped.
  if used + n > limit and intact and last < ceiling and checked then return answer('exhausted', held) end
  if used + n > upto and used + n <= limit then return late() end
  if used > limit then -- another template issued it, or the block lies beyond the limit
    used = math.max(limit, last or 0)
    upto = used
  end
end

local enough = n == 0 or used + n <= limit
local issued = enough and used + n or used
permitCounter(counter, held, expires)
if request and n > 0 then redis.call('SET', request, '', 'XX') end -- fails if it must not be written; sets nothing
--include enter
-- If the record does not know the period, it begins at the caller's start, unless lower sequences were used.
if state ~= 'same' and state ~= 'ahead' and not known(label) then
  local start, seen = ARGV[8] + 0, math.max(last or 0, floor or 0, highWater)
  noteStart(label, not unused and 0 < seen and seen < start and 0 or start, lastOpened(begins))
end
if id then
  local copy = issued == last and held or plain(issued)
  redis.call('HSET', record, 'ceiling', plain(upto), 'counterCopy', copy, 'replID', id)
end
write(counter, held, last, issued, expires)
if lock and redis.pcall('GET', lock) == ARGV[12] then redis.pcall('DEL', lock) end
if not enough then
  return answer('exhausted', issued == last and held or string.format('%.0f', issued), from, math.min(used, 1e15))
end
if request and n > 0 then
  --include remember
end
if there then return answer('there', '', 0, issued) end
if used > from then return answer('lifted', '', from, math.min(issued, 1e15)) end
return math.min(issued, 1e15)
