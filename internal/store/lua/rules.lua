-- rules.lua states every rule about periods once. A script includes it, with a line "--include rules", where it needs
-- the rules. The results are locals: a table of so many fields would cost a script as much as three commands.
--
-- The record is a hash with these fields:
--   entered  the last period entered: "LABEL FIRST PAST CALENDAR #PRINT". FIRST is its first instant and PAST the first
--            one after it, in Unix seconds; periods are compared by these, never by the name of a time zone. CALENDAR
--            is what the series is counted by. It stays as long as the record lives, so labels sort as their periods
--            do. PRINT is the print mark: a hash of everything that could make two processes print different sequences
--            of a period alike. " ledger" follows if the period's numbers are set aside in a ledger.
--   ahead    the periods that follow the one entered without a gap and were opened ahead of time: ";LABEL FIRST
--            PAST;...;"; or empty, or absent
--   used     the labels that may have been used, as runs in ascending order: "FROM-TO;FROM-TO;". It omits no label that
--            was used. Of more than three runs, up to which Redis usually keeps a hash compact, two become one.
--   print    the first label from which all labels that were used have the print mark of the period entered
--   starts   the starts of periods that do not start at 1: "FROM-TO START;FROM-TO START;"; or absent. The periods that
--            were opened from label FROM to label TO have START as their first sequence; a later run overrides an
--            earlier one. A new period extends the last run if it has the same start. Of more than three runs, those
--            that end before the period entered are dropped.
--   ledger   the first label from which all numbers are set aside in a ledger; or absent
--   and, with a ledger, for the period entered:
--   ceiling      the last sequence that was set aside
--   counterCopy  a copy of the counter
--   replID       the replication ID of the server that issued the last number
--   claim        "TOKEN UNTIL": who may install a block, and until when, in milliseconds by the server's clock
--
-- KEYS  each script has its own. A counter is a string, the last sequence issued in its period.
-- ARGV  1  period   the caller's period, as the record would have it
--       2  from     the first instant of the caller's span, in which the same date is printed, Unix seconds
--       3  to       the first instant after that span
--       4  limit    the largest sequence, at most 10^15-1
--       5  expires  when the counter expires, Unix seconds, at least the end of the period
--
-- Replies that issue nothing are {status, seconds, microseconds, ...}: the server's time, then the details. Every
-- script may reply:
--   "clock"             the server's clock is not in the span
--   "calendar" ENTERED  the series is counted by another calendar, as the record's period says
--   "conflict" ENTERED  the period entered, as in the record, overlaps the caller's, or has the same label or a later
--                       one; or its numbers are set aside in a ledger, which the caller does not have
--   "print" GREATEST    the caller's print mark is another, and its label is not greater than the greatest ever
--                       entered; or its label may have been used with another print mark
--   "future" ENTERED    the period entered begins after now: the server's clock went back
--   "unknown" SAYS      the caller has a ledger, and INFO says SAYS instead of a master's replication ID
--
-- A script has these locals before the rules:
--   time       the server's time, as TIME replies
--   counter, record  keys
--   highWater  the greatest sequence of the period that the caller has seen, 0 if none
--   id         the server's replication ID if it has been read, else nil
--   purpose    what the caller wants. The rules know three purposes:
--              "raise"     gets the state "future" instead of a refusal
--              "takeover"  gets that and, instead of a conflict, the state "taken"
--              "read"      may read a period with a ledger that it does not have
-- A refusal is returned: it ends the script or, in take, the type's turn. After the rules there are these locals too:
--   state    "same"    the caller's period is the one entered
--            "open"    it may be opened: there is no record, or the period entered has ended and the caller's label is
--                      later
--            "ahead"   the same, and it was opened ahead of time: it only has to be entered
--            "future"  the period entered begins after now: the server's clock went back
--            "taken"   another time zone's or day start's period, or another ledger's, is in force, and the caller
--                      takes over
--   operator  purpose is "raise" or "takeover"
--   held     content of the counter, as text; false if there is none
--   last     the same as a number, see read
--   lost     the counter existed once, and is gone, below the high-water mark or not a number
--   unrecoverable   it is lost, and no ledger knows how far it had come: there is none, or it was turned on later
--   id       with a ledger: the server's replication ID
--   ceiling  with a ledger: the record's, nil if it has none for the caller's period
--   intact   with a ledger: the counter is as the last number issued has left it
--   unused   nothing of the period was used, as far as counter, record and the caller know: only then a start counts
--   now, ms  the server's time, seconds and milliseconds
--   label, begins, past, ours, ledger   the caller's period: label, first instant, end; the rest of it; whether it has
--                                       a ledger
--   entered, enteredLabel, enteredPast, theirs   the same for the period entered; entered is all of it, false if there
--                                                is no record
--   ahead, usedLabels, firstPrint, starts, firstLedger   the record's fields ahead, used, print, starts and ledger
--   greatest, samePrint   the greatest label ever entered; whether the period entered has the caller's print mark
--   answer, read, known, baseOf   functions, see below
local now = time[1] + 0
local ms = now * 1000 + math.floor(time[2] / 1000)

-- answer returns a reply with that status and its details.
local function answer(status, ...) return {status, now, time[2] + 0, ...} end

if now < ARGV[2] + 0 or now >= ARGV[3] + 0 then return answer('clock') end
-- A pattern costs as much as several commands. So texts are taken apart only if comparing them is not enough.
local pattern, manner = '^(%S+) (%-?%d+) (%-?%d+)( .*)$', '^ (.-) (#%x+)' -- an instant before 1970 is negative
local label, begins, past, ours = string.match(ARGV[1], pattern)
begins, past = begins + 0, past + 0
local ledger = string.find(ours, ' ledger', 1, true)
local kept = ledger and redis.call('HMGET', record, 'entered', 'ahead', 'used', 'print', 'starts', 'ledger',
  'ceiling', 'counterCopy', 'replID') or redis.call('HMGET', record, 'entered', 'ahead', 'used', 'print', 'starts')
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

-- known returns whether a label may have been used. After the period entered, only a fast clock has used labels.
local function known(l)
  if l > greatest then return false end
  for from, to in string.gmatch(usedLabels, '(%w+)-(%w+)') do
    if from <= l and l <= to then return true end
  end
  return false
end

-- baseOf returns the sequence before the first of a period that was opened: its start - 1.
local function baseOf(l)
  local before = 0
  for from, to, start in string.gmatch(starts, '(%w+)-(%w+) (%d+);') do
    if from <= l and l <= to then before = start - 1 end
  end
  return before
end

-- read returns the content of a counter, as a number and as text. The number is nil if there is none or INCRBY would
-- not take the text for one. It is at most 10^15, which is beyond every limit and still exact as a double. The text is
-- false if the counter does not exist. Only the error WRONGTYPE says something about the content.
local function read(key)
  local held = redis.pcall('GET', key)
  if type(held) == 'table' then
    held = string.find(held.err, 'WRONGTYPE', 1, true) and 'another type of key' or redis.call('GET', key)
  end
  local number = held and (held == '0' or string.find(held, '^[1-9]%d*$'))
  return number and (#held > 15 and 1e15 or tonumber(held)) or nil, held
end

local state, usedByFastClock = 'same', false
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
    state, usedByFastClock = 'open', known(label)
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
  and (state == 'same' or state == 'ahead' or usedByFastClock or highWater > 0 or held)
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
  unrecoverable = lost and (usedByFastClock and not ledgerKnows or state == 'same' and entered ~= ARGV[1])
end
local unused = not held and highWater == 0 and state ~= 'same' and state ~= 'ahead' and not known(label)
