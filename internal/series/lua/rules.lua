-- rules.lua contains the rules about periods. Both scripts include it, with a line "--include rules", at the point at
-- which the rules apply.
--
-- The record is a hash with these fields. Only entered always exists.
--   entered     the period entered, which is the period in which numbers are currently issued. Its form is
--               "LABEL FIRST PAST CALENDAR 0.6 #PRINT", followed by " ledger" if its numbers are reserved in a ledger.
--               FIRST is the first instant of the period and PAST the first instant after it, in Unix seconds. CALENDAR
--               cannot change while the record exists, so labels sort in the order of their periods. PRINT is the print
--               mark
--   first       the first sequence of the period entered, if it is not 1
--   ahead       the period that was prepared and has not been entered yet, in the form "LABEL FIRST PAST"
--   firstAhead  the first sequence of that period, if it is not 1
--   jump        "LEFT ENTERED", the labels of two periods that were entered one after the other, although they are not
--               neighbours. The labels between them have never been used. Only the latest such pair is kept
--   doubtful    "FROM TO", the first and the last of the labels that may have been used, because a clock was ahead or
--               the series was taken over
--   print       the first label from which on all numbers have the print mark of the period entered
--   ledger      the first label from which on all numbers are reserved in the ledger
--   ceiling, counterCopy, replID   only with a ledger: the last sequence reserved for the period entered, a copy of its
--               counter, and the replication ID of the server that issued the last number
-- A record of release 0.5.0 has no "0.6" in entered. It has no fields first and firstAhead. Instead, the two fields
-- "starts" and "used" contain runs of labels (see the conversion below). A process of 0.5.0 takes "0.6" for part of the
-- calendar's name, and therefore refuses the series.
--
-- KEYS  1 counter, a string with the last sequence issued; 2 record
-- ARGV  1  period     the caller's period, in the form of entered
--       2  from       the first instant of the caller's span, in Unix seconds. A span is a part of the period in which
--                     the printed date does not change
--       3  to         the first instant after the span, in Unix seconds
--       4  limit      the largest sequence, at most 10^15-1
--       5  expires    the time at which the counter expires, in Unix seconds, at or after the end of the period
--       6  n          how many sequences to issue
--       7  highWater  the largest sequence of the period that the caller's process has returned, or 0 if none
--
-- A reply that is not a number is a JSON object. Its field status is the kind of the reply. seconds and micros are the
-- server's time. Sequences are strings, because cjson prints only 14 digits of a number. Every script may reply with
-- one of these refusals, most of which have a field text:
--   "clock"     the server's clock is outside the span
--   "calendar"  the series uses the calendar of the period entered (text), but the caller has another calendar. If the
--               record is not a hash, text is "another type of key"
--   "conflict"  the period entered or prepared (text) overlaps the caller's period, has the same or a later label, or
--               has a ledger although the caller has none
--   "print"     the caller has another print mark, which may be used only after the label in text; or numbers with the
--               caller's label may have been printed with another print mark
--   "future"    the period entered (text) has not begun, because the server's clock was ahead or was set back
--   "unknown"   the caller has a ledger, but the reply of INFO (text) does not contain the replication ID of a master
--
-- The including script must define three locals: time, the reply of TIME; id, the server's replication ID, or nil if it
-- has not been read; and purpose, which is "raise", "takeover", "read" or nil. With "raise" and "takeover", the rules
-- accept a period entered that has not begun. With "takeover", they also accept a conflict. With "read", they accept a
-- period with a ledger even if the caller has none.
--
-- The rules set these locals:
--   state    "same"    the caller's period is the period entered
--            "open"    the period may be opened, because there is no record or the period entered has ended
--            "ahead"   like "open", but the period was prepared, so it only has to be entered
--            "future"  an operator returns to a period before the period entered
--            "taken"   an operator takes over a series that has another time zone or day start, or that has a ledger
--                      although the caller has none
--   content  the content of the counter as a string, or false if there is no counter
--   last     the content as a number, at most 10^15; nil if there is no counter or INCRBY would refuse its content
--   lost     whether the counter once existed, and is now missing, below the high-water mark or not a number
--   unrecoverable  whether the counter is lost, and no ledger has reserved the sequences that may have been issued
--   intact   with a ledger: whether the counter is unchanged since the last number was issued
--   unused   whether no sequence of the period was used, as far as the counter, the record and the caller show
--   the fields of the record, with the same names; and now, ms, label, begins, past, settings, ledgered, enteredLabel,
--   enteredPast, enteredSettings, samePrint, largest
if time.err then return {err = 'TIME is refused: ' .. time.err} end -- the error of Redis may not name the command
local counter, record = KEYS[1], KEYS[2]
local now = time[1] + 0
local ms = now * 1000 + math.floor(time[2] / 1000)
local operator = purpose == 'raise' or purpose == 'takeover'

-- reply returns a JSON object with a status, a text (which may be nil), and the fields of the table more.
local function reply(status, text, more)
  local fields = more or {}
  fields.status, fields.text, fields.seconds, fields.micros = status, text, now, time[2] + 0
  return cjson.encode(fields)
end

-- digits returns a sequence as a string.
local function digits(seq) return string.format('%.0f', seq) end

if now < ARGV[2] + 0 or now >= ARGV[3] + 0 then return reply('clock') end
local pattern, settingsPattern = '^(%S+) (%-?%d+) (%-?%d+)( .*)$', '^ (.-) (#%x+)' -- an instant before 1970 is negative
local label, begins, past, settings = string.match(ARGV[1], pattern)
begins, past = begins + 0, past + 0
local ledgered = string.find(settings, ' ledger', 1, true)

local stored = redis.pcall('HMGET', record, 'entered', 'first', 'ahead', 'firstAhead', 'jump', 'doubtful', 'print',
  'ledger', 'ceiling', 'counterCopy', 'replID', 'used', 'starts')
if stored.err then
  return string.find(stored.err, 'WRONGTYPE', 1, true) and reply('calendar', 'another type of key') or stored
end
local entered, first, ahead, firstAhead, jump, doubtful, print, ledger, ceiling, counterCopy, replID
  = unpack(stored, 1, 11)
local old = entered and not string.find(entered, ' 0.6 #', 1, true)
local enteredLabel, enteredFirst, enteredPast, enteredSettings = string.match(entered or '', pattern)
if old then -- convert a record of 0.5.0
  entered = string.gsub(entered, ' #', ' 0.6 #', 1)
  enteredSettings = enteredSettings and string.gsub(enteredSettings, ' #', ' 0.6 #', 1)
  ahead = string.match(ahead or '', '^;([^;]+);') or false
  local name = ahead and string.match(ahead, '^%S+')
  for from, to, start in string.gmatch(stored[13] or '', '(%w+)-(%w+) (%d+);') do
    if enteredLabel and from <= enteredLabel and enteredLabel <= to then first = start end
    if name and from <= name and name <= to then firstAhead = start end
  end
  local newest = string.match(stored[12] or '', '(%w+);$')
  if newest and enteredLabel and newest > enteredLabel then doubtful = enteredLabel .. ' ' .. newest end
end
enteredFirst, enteredPast = tonumber(enteredFirst), tonumber(enteredPast)

local samePrint = entered and settings == enteredSettings
if entered and not samePrint then
  local calendar, mark = string.match(settings, settingsPattern)
  local enteredCalendar, enteredMark = string.match(enteredSettings or '', settingsPattern)
  if enteredCalendar ~= calendar then return reply('calendar', entered) end
  samePrint = enteredMark == mark
end
local left, jumped = string.match(jump or '', '^(%w+) (%w+)$')
local from, to = string.match(doubtful or '', '^(%w+) (%w+)$')
local largest = enteredLabel or '' -- labels of one calendar have the same length, so they can be compared as strings
if to and to > largest then largest = to end

-- known reports whether a label may have been used.
local function known(l)
  if from and from <= l and l <= to then return true end
  return enteredLabel and l <= enteredLabel and not (left and left < l and l < jumped)
end

-- firstOf returns the first sequence of a period that is entered or prepared. It returns nil for any other label.
local function firstOf(l)
  if l == enteredLabel then return (first or 1) + 0 end
  return ahead and l == string.match(ahead, '^%S+') and (firstAhead or 1) + 0 or nil
end

-- read returns the content of a counter as a number and as a string, in the forms of last and content above. WRONGTYPE
-- is the only error that depends on the content. After any other error, the script fails.
local function read(key)
  local content = redis.pcall('GET', key)
  if type(content) == 'table' then
    content = string.find(content.err, 'WRONGTYPE', 1, true) and 'another type of key' or redis.call('GET', key)
  end
  local number = content and (content == '0' or string.find(content, '^[1-9]%d*$'))
  return number and (#content > 15 and 1e15 or tonumber(content)) or nil, content
end

local state = 'same'
if not entered then
  state = 'open'
elseif entered ~= ARGV[1] and entered .. ' ledger' ~= ARGV[1]
  and (purpose ~= 'read' or entered ~= ARGV[1] .. ' ledger') then
  local conflict
  if enteredFirst > now then
    if not operator then return reply('future', entered) end
    state = 'future'
  elseif enteredPast <= begins and label > enteredLabel then
    state = 'open'
    if ahead == string.match(ARGV[1], '^%S+ %S+ %S+') then
      state = 'ahead'
    elseif ahead and tonumber(string.match(ahead, '%S+$')) > begins then -- another time zone or day start
      conflict = ahead
    end
  else
    conflict = entered
  end
  -- Not even an operator may change the print mark of a label that may have been used.
  if label <= largest and not samePrint or print and label < print and known(label) then
    return reply('print', largest)
  end
  if conflict and purpose ~= 'takeover' then return reply('conflict', conflict) end
  if conflict then state = 'taken' end
end

local last, content = read(counter)
local highWater = ARGV[7] + 0
local lost = (not last or last < highWater)
  and (state == 'same' or state == 'ahead' or highWater > 0 or content or known(label)) and true or false
local unused, unrecoverable, intact = not content and not lost, lost, false
if ledgered then
  local infoReply
  if not id then
    --include master
    id, infoReply = master()
  end
  if not id then return reply('unknown', infoReply) end
  ceiling = entered == ARGV[1] and tonumber(ceiling)
  intact = ceiling and counterCopy == content and replID == id and not lost
  local reserved = ledger and label >= ledger
  unrecoverable = lost
    and (state ~= 'same' and not reserved and known(label) or state == 'same' and entered ~= ARGV[1])
end
