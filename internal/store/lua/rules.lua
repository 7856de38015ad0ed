-- rules.lua states every rule about periods, once. A script includes it with a line "--include rules" at the point
-- where the rules apply. The results are locals: a table with that many fields would cost a script as much as three
-- commands.
--
-- The record is a hash with these fields:
--   entered  the last period entered: "LABEL FIRST PAST CALENDAR #PRINT". " ledger" follows if the period's numbers are
--            set aside in a ledger.
--              FIRST, PAST  the period's first instant, and the first instant after it, Unix seconds. Periods are
--                           compared by these, never by the name of a time zone.
--              CALENDAR     what the series is counted by. It never changes while the record lives, so labels sort as
--                           their periods do.
--              PRINT        the print mark: a hash of everything that could make two processes print different
--                           sequences of a period alike
--   ahead    the periods opened ahead of time, which follow the one entered without a gap:
--            ";LABEL FIRST PAST;...;"; empty or absent if there are none
--   used     the labels that may have been used, as runs in ascending order: "FROM-TO;FROM-TO;". Every used label is in
--            a run, and so may be some unused ones. There are at most three runs, because Redis usually keeps a hash
--            with three of them compact; a fourth makes two of them one.
--   print    the first label from which on all used labels have the print mark of the period entered
--   starts   where periods start, if not at 1, as runs: "FROM-TO START;FROM-TO START;"; or absent. START is the first
--            sequence of the periods opened from label FROM to label TO. A later run overrides an earlier one. A new
--            period with the last run's start extends that run. If there are more than three runs, those that end
--            before the period entered and the new one are dropped.
--   ledger   the first label from which on all numbers are set aside in a ledger; or absent
--   and, with a ledger, for the period entered:
--   ceiling      the last sequence set aside
--   counterCopy  a copy of the counter
--   replID       the replication ID of the server that issued the last number
--   claim        "TOKEN UNTIL": who may install a block, and until when, milliseconds by the server's clock
--
-- KEYS  differ from script to script. A counter is a string, the last sequence issued in its period.
-- ARGV  1  period   the caller's period, in the form of the record's field entered
--       2  from     the first instant of the caller's span, throughout which the same date is printed, Unix seconds
--       3  to       the first instant after that span, Unix seconds
--       4  limit    the largest sequence, at most 10^15-1
--       5  expires  when the counter expires, Unix seconds, no earlier than the end of the period
--
-- Replies that issue nothing are {status, seconds, microseconds, ...}: the server's time, then the details. Those
-- at the end are left out if they say nothing. Every script may reply:
--   "clock"             the server's clock is outside the span
--   "calendar" ENTERED  the series is counted by another calendar, which the period entered names; or the record is
--                       not a hash, and ENTERED is "another type of key"
--   "conflict" ENTERED  the period entered overlaps the caller's, or its label is the same or later; or its numbers are
--                       set aside in a ledger, which the caller does not have
--   "print" GREATEST    the caller has another print mark, and its label is not greater than GREATEST, the greatest
--                       label ever entered; or its label may have been used with another print mark
--   "future" ENTERED    the period entered has not begun: the server's clock went back
--   "unknown" SAYS      the caller has a ledger, but INFO returns no master's replication ID; SAYS is what it returns
-- ENTERED is the record's field entered.
--
-- The including script sets these locals:
--   time       the server's time, as TIME replies
--   counter, record  keys
--   highWater  the greatest sequence of the period that the caller has seen, 0 if none
--   id         the server's replication ID if it has been read, else nil
--   purpose    what the caller wants. Three purposes change the rules:
--              "raise"     a period entered that has not begun is the state "future", not a refusal
--              "takeover"  the same, and a conflict is the state "taken"
--              "read"      the period may have a ledger, though the caller has none
-- The rules return a refusal, which ends the script or, in take, the turn of one type. Otherwise they set these locals:
--   state    "same"    the caller's period is the one entered
--            "open"    the period may be opened: there is no record, or the period entered has ended and the caller's
--                      label is later
--            "ahead"   the same, but the period was opened ahead of time and only has to be entered
--            "future"  the period entered has not begun: the server's clock went back
--            "taken"   the caller takes over from another time zone, day start or ledger
--   operator  whether purpose is "raise" or "takeover"
--   held     content of the counter, as text; false if there is none
--   last     the same as a number, see read
--   lost     whether the counter once existed, and is gone, is below the high-water mark or is not a number
--   unrecoverable   whether it is lost and no ledger knows how far it had come: there is none, or it was turned on
--                   later
--   id       with a ledger: the server's replication ID
--   ceiling  with a ledger: the record's field, nil if the caller's period is not the one entered
--   intact   with a ledger: whether the counter is as the last number issued left it
--   unused   whether nothing of the period was used, as far as counter, record and caller know; only then its start
--            counts
--   now, ms  the server's time, seconds and milliseconds
--   label, begins, past, ours, ledger   the caller's period: label, first instant, end, the rest, and whether it has a
--                                       ledger
--   entered, enteredLabel, enteredPast, theirs   the period entered: the whole field (false without a record), label,
--                                                end, and the rest
--   ahead, usedLabels, firstPrint, starts, firstLedger   the record's fields ahead, used, print, starts and ledger
--   greatest, samePrint   the greatest label ever entered; whether the period entered has the caller's print mark
--   answer, read, known, baseOf   functions, see below
local now = time[1] + 0
local ms = now * 1000 + math.floor(time[2] / 1000)

-- answer returns a reply with that status and its details.
local function answer(status, ...) return {status, now, time[2] + 0, ...} end

if now < ARGV[2] + 0 or now >= ARGV[3] + 0 then return answer('clock') end
-- A pattern costs as much as several commands, so texts are taken apart only if comparing them is not enough.
local pattern, manner = '^(%S+) (%-?%d+) (%-?%d+)( .*)$', '^ (.-) (#%x+)' -- an instant before 1970 is negative
local label, begins, past, ours = string.match(ARGV[1], pattern)
begins, past = begins + 0, past + 0
local ledger = string.find(ours, ' ledger', 1, true)
local kept = ledger and redis.pcall('HMGET', record, 'entered', 'ahead', 'used', 'print', 'starts', 'ledger',
  'ceiling', 'counterCopy', 'replID') or redis.pcall('HMGET', record, 'entered', 'ahead', 'used', 'print', 'starts')
if kept.err then
  return string.find(kept.err, 'WRONGTYPE', 1, true) and answer('calendar', 'another type of key') or kept
end
local entered, ahead, usedLabels = kept[1], kept[2] or '', kept[3] or ''
local firstPrint, starts, firstLedger = kept[4] or '', kept[5] or '', kept[6]
local enteredLabel, enteredFirst, enteredPast, theirs = string.match(entered or '', pattern)
local samePrint = entered and ours == theirs
if entered and not samePrint then
  local calendar, print = string.match(ours, manner)
  local another, printed = string.match(theirs or '', manner)
  if another ~= calendar then return answer('calendar', entered) end
  samePrint = printed == print
end
local greatest = string.sub(usedLabels, -#label - 1, -2) -- all labels of a calendar have the same length

-- known reports whether a label may have been used. Only a fast clock can have used labels after the period entered.
local function known(l)
  if l > greatest then return false end
  for from, to in string.gmatch(usedLabels, '(%w+)-(%w+)') do
    if from <= l and l <= to then return true end
  end
  return false
end

-- baseOf returns the sequence before the first one of a period that was opened: its start - 1.
local function baseOf(l)
  local before = 0
  for from, to, start in string.gmatch(starts, '(%w+)-(%w+) (%d+);') do
    if from <= l and l <= to then before = start - 1 end
  end
  return before
end

-- read returns the content of a counter, as a number and as text. The number is nil if there is no counter, or if
-- INCRBY would refuse the text. It is at most 10^15, which exceeds every limit and is still exact in a Lua number. The
-- text is false if there is no counter. WRONGTYPE is the only error that says something about the content.
local function read(key)
  local held = redis.pcall('GET', key)
  if type(held) == 'table' then
    held = string.find(held.err, 'WRONGTYPE', 1, true) and 'another type of key' or redis.call('GET', key)
  end
  local number = held and (held == '0' or string.find(held, '^[1-9]%d*$'))
  return number and (#held > 15 and 1e15 or tonumber(held)) or nil, held
end

local state = 'same'
local operator = purpose == 'raise' or purpose == 'takeover'
if not entered then
  state = 'open'
elseif entered ~= ARGV[1] and entered .. ' ledger' ~= ARGV[1]
  and (purpose ~= 'read' or entered ~= ARGV[1] .. ' ledger') then
  local conflict
  if tonumber(enteredFirst) > now then
    if not operator then return answer('future', entered) end
    state = 'future'
  elseif tonumber(enteredPast) <= begins and label > enteredLabel then
    state = 'open'
    if ahead ~= '' then
      local opened, goes = string.match(ahead, '([^;]+ (%-?%d+));$')
      if string.find(ahead, ';' .. string.match(ARGV[1], '^%S+ %S+ %S+') .. ';', 1, true) then
        state = 'ahead'
      elseif opened and tonumber(goes) > begins then -- another time zone or day start
        conflict = opened
      end
    end
  else
    conflict = entered
  end
  -- Not even an operator may override this.
  if label <= greatest and not samePrint or known(label) and label < firstPrint then
    return answer('print', greatest)
  end
  if conflict and purpose ~= 'takeover' then return answer('conflict', conflict) end
  if conflict then state = 'taken' end
end

local last, held = read(counter)
local lost = (not last or last < highWater)
  and (state == 'same' or state == 'ahead' or highWater > 0 or held or known(label))
local unrecoverable, ceiling, intact = lost, nil, nil
if ledger then
  local says
  if not id then
    --include master
    id, says = master()
  end
  if not id then return answer('unknown', says) end
  if entered == ARGV[1] then
    ceiling = tonumber(kept[7])
    intact = ceiling and kept[8] == held and kept[9] == id and not lost
  end
  local ledgerKnows = firstLedger and label >= firstLedger
  unrecoverable = lost
    and (state ~= 'same' and not ledgerKnows and known(label) or state == 'same' and entered ~= ARGV[1])
end
local unused = not held and not lost
