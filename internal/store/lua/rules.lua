-- rules.lua comes first in every script that needs the rules about periods. It has functions only, and states every rule once.
--
-- The record is a hash. Its fields:
--   entered  the last period entered: "LABEL FIRST PAST CALENDAR #PRINT". FIRST is its first instant and PAST the first one after
--            it, in Unix seconds; periods are compared by these, never by the name of a time zone. CALENDAR is what the series
--            counts by. It stays as long as the record lives, so labels sort as their periods do. PRINT is the print mark, of all
--            that could make two processes print different sequences of a period alike. " ledger" follows if the period's numbers
--            are set aside in one.
--   ahead    absent or empty, or the periods that follow it without a gap and were opened ahead of time: ";LABEL FIRST PAST;...;"
--   used     the labels that may have been used, as runs in ascending order: "FROM-TO;FROM-TO;". It omits none that was, and beyond
--            three runs, up to which Redis usually keeps a hash compact, two become one.
--   print    the label from which on every label that was used has the print mark of the period entered
--   ledger   absent, or the first label of those whose numbers are all set aside in a ledger
--   and of the period entered, with a ledger:
--   ceiling      the last sequence that was set aside
--   counterCopy  of the counter
--   replID       the replication ID of the server that issued last
--   claim        "TOKEN UNTIL": who may install a block, until then, in milliseconds by the server's clock
--
-- KEYS  each script has its own. A counter is a string, the last sequence issued in its period.
-- ARGV  1  period   that the caller thinks it is in, as the record would have it
--       2  from     the first instant of its span, in which the same date is printed, Unix seconds
--       3  to       the first instant after that span
--       4  limit    the largest sequence, at most 10^15-1
--       5  expires  when the counter does, Unix seconds, at least the end of the period
--
-- Replies that issue nothing are {status, seconds, microseconds, ...}: the server's time, then the details. Of every script:
--   "clock"             the server's clock is not in the span
--   "calendar" ENTERED  the series counts by another calendar, as the record's period says
--   "conflict" ENTERED  the period entered, as in the record, overlaps the caller's, or bears its label or a later one, or its
--                       numbers are set aside in a ledger, which the caller does not have
--   "print" GREATEST    the caller's print mark is another, and its label is not greater than the greatest ever entered; or its
--                       label may have been used with another print mark
--   "future" ENTERED    the period entered begins after now: the server's clock went back
--   "unknown" SAYS      the caller has a ledger, and INFO does not tell the replication ID of a master, but what SAYS is
-- The error of a command is the script's. Scripts are not rolled back. So whatever may be refused is asked for before the first
-- write, and the record is written before the counter.

-- master returns the replication ID of this server if it is a master, else nil and what INFO says.
local function master()
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then return nil, info.err or '' end
  local _, at = string.find(info, 'master_replid:', 1, true) -- several times as fast as a pattern
  local id = at and string.match(info, '^%x+', at + 1)
  local slave = string.find(info, 'role:slave', 1, true)
  if not id or slave then return nil, id and 'role:slave' or info end
  return id
end

-- periodRules returns what is known of the caller's period, counter and record; or nil and a reply. time is the server's;
-- highWater is the greatest sequence of the period that the caller has seen, 0 if none; id is the server's replication ID if the script has
-- read it. tolerate is what the caller wants, of which these are told apart:
--   "raise"     the state "future", instead of a refusal
--   "takeover"  that and a conflict, which becomes the state "taken"
--   "read"      a ledger that it does not have: it reads only
--
-- The fields of what it returns:
--   state    "same"    the caller's period is the one entered
--            "open"    it may be opened: there is no record, or the period entered has ended and the caller's label is later
--            "ahead"   the same, and it was opened ahead of time: it only has to be entered
--            "future"  the period entered begins after now: the server's clock went back
--            "taken"   another time zone's or day start's period, or another's ledger, is in force, and the caller takes over
--   operator  tolerate is "raise" or "takeover"
--   held     what the counter holds, as text; false if there is none
--   last     the same as a number, see read
--   lost     the counter was there once, and is gone, below the high-water mark or not a number
--   unrecoverable   it is lost, and no ledger can tell how far it had come: there is none, or it was turned on later
--   id       with a ledger: the server's replication ID
--   ceiling  with a ledger: the record's, nil if there is none for the caller's period
--   intact   with a ledger: the counter is as the last number issued has left it
--   entered, ahead  the record's, false and "" if there is none
--   milliseconds    the server's time
--   answer, read, keep, permit, permitCounter, write, known, enter  functions, see there
local function periodRules(time, counter, record, highWater, tolerate, id)
  local now = time[1] + 0
  local p = { -- all fields are here: a table that grows is made anew again and again
    milliseconds = now * 1000 + math.floor(time[2] / 1000), state = 'same', operator = false, held = false,
    last = false, lost = false, unrecoverable = false, id = false, ceiling = false, intact = false, entered = false,
    ahead = '', answer = false, read = false, keep = false, permit = false, permitCounter = false, write = false,
    known = false, enter = false,
  }

  function p.answer(status, text, first, second)
    return {status, now, time[2] + 0, text or '', first or 0, second or 0}
  end

  if now < ARGV[2] + 0 or now >= ARGV[3] + 0 then return nil, p.answer('clock') end
  -- A pattern costs as much as several commands. So texts are taken apart only where comparing them does not do.
  local pattern, manner = '^(%S+) (%d+) (%d+)( .*)$', '^ (.-) (#%x+)'
  local label, begins, past, ours = string.match(ARGV[1], pattern)
  begins, past = begins + 0, past + 0
  local ledger = string.find(ours, ' ledger', 1, true)
  local kept = ledger and redis.call('HMGET', record, 'entered', 'ahead', 'used', 'print', 'ledger', 'ceiling',
    'counterCopy', 'replID') or redis.call('HMGET', record, 'entered', 'ahead', 'used', 'print')
  local entered, firstPrint, firstLedger = kept[1], kept[4] or '', kept[5]
  local last, first, ends, theirs = string.match(entered or '', pattern)
  local samePrint = entered and ours == theirs
  if entered and not samePrint then
    local calendar, print = string.match(ours, manner)
    local another, printed = string.match(theirs or '', manner)
    if another ~= calendar then return nil, p.answer('calendar', entered) end
    samePrint = printed == print
  end
  p.entered, p.ahead = entered, kept[2] or ''
  local used = kept[3] or ''
  local greatest = string.sub(used, -#label - 1, -2) -- label ever entered; those of a calendar have one length

  -- labels returns the first and the last label of each run of those used, in ascending order.
  local function labels()
    local runs = {}
    for l in string.gmatch(used, '%w+') do table.insert(runs, l) end
    return runs
  end

  -- read returns what a counter holds, as a number and as text: nil for none and for what INCRBY would not take for a number, at
  -- most 10^15, which is beyond every limit and still exact as a double; and false if the counter is not there. Of all errors only
  -- WRONGTYPE tells what a key holds.
  function p.read(key)
    local held = redis.pcall('GET', key)
    if type(held) == 'table' then
      held = string.find(held.err, 'WRONGTYPE', 1, true) and 'another type of key' or redis.call('GET', key)
    end
    local number = held and (held == '0' or string.find(held, '^[1-9]%d*$'))
    return number and (#held > 15 and 1e15 or tonumber(held)) or nil, held
  end

  -- lifetime sets when a key expires: then, or when it does already if that is later, since another caller may keep it longer. A counter
  -- without a record is nobody's.
  local function lifetime(key, at)
    local left = entered and redis.call('PTTL', key) or 0
    local stays = left > 0 and math.floor((p.milliseconds + left) / 1000 + 0.5) or 0
    redis.call('EXPIREAT', key, string.format('%.0f', math.max(at, stays)))
  end

  -- keep sets fields of the record, which lives for seven days after the last period opened: it is still there after a weekend or
  -- a holiday. EXPIREAT may be refused, and does nothing to a key that is not there.
  function p.keep(...)
    local opened = p.ahead ~= '' and tonumber(string.match(p.ahead, '(%d+);$')) or 0
    local ends = math.max(past, opened) + 7 * 24 * 60 * 60
    lifetime(record, ends)
    redis.call('HSET', record, ...)
    if not entered then lifetime(record, ends) end
  end

  -- permit fails if key must not be set. It sets nothing, since the condition is never true.
  function p.permit(key, there) redis.call('SET', key, '', there and 'NX' or 'XX') end

  -- permitCounter fails if a counter must not be written. Of one that is there it sets only when it expires.
  function p.permitCounter(key, held, at)
    if held then lifetime(key, at + 0) end
    p.permit(key, held)
  end

  -- write makes a counter hold a text, after permitCounter. A new one expires at a time in the future, as text.
  function p.write(key, held, text, at)
    if not held then
      redis.call('SET', key, text, 'EXAT', at)
    elseif text ~= held then
      redis.call('SET', key, text, 'KEEPTTL')
    end
  end

  -- known returns whether a label may have been used. Of the labels after the period entered, these are a fast clock's.
  function p.known(l)
    if l > greatest then return end
    local runs = labels()
    for i = 1, #runs, 2 do
      if runs[i] <= l and l <= runs[i + 1] then return true end
    end
  end

  -- use adds the caller's label to those used, and returns them as the record holds them.
  local function use()
    if greatest == last and label > last and ends + 0 == begins then -- the last run goes on
      return string.sub(used, 1, -#last - 2) .. label .. ';'
    end
    local runs = labels()
    if not p.known(label) then
      table.insert(runs, label)
      table.insert(runs, label)
      table.sort(runs)
    end
    -- Two runs become one where the caller's period follows on the last one. So do two of more than three. The labels between them
    -- count as used, which does no harm below the label, unless the clock is ahead now. So the smallest gap goes, and none above
    -- the label before.
    local function number(l) return tonumber((string.gsub(l, '%D', ''))) end
    local least, at = #runs > 6 and math.huge or 1
    for i = 2, #runs - 2, 2 do
      local gap = number(runs[i + 1]) - number(runs[i])
      if runs[i + 1] > label then gap = gap + 1e15 end
      if runs[i] == last and runs[i + 1] == label and ends + 0 == begins then gap = 0 end
      if gap < least then least, at = gap, i end
    end
    if at then
      table.remove(runs, at)
      table.remove(runs, at)
    end
    return (string.gsub(table.concat(runs, ' '), '(%w+) (%w+) ?', '%1-%2;'))
  end

  -- enter makes the caller's period the one entered, and sets the fields given besides. What was opened further ahead stays so,
  -- unless the clock went back or the calendar is another.
  function p.enter(...)
    if not samePrint or label < firstPrint then
      local new, runs = true, labels() -- from the label on, no other print mark was used
      for i = 1, #runs, 2 do new = new and (runs[i + 1] < label or runs[i] >= firstPrint) end
      if new then firstPrint = label end
    end
    local rest = ''
    for period, begun in string.gmatch(p.ahead, '([^;]+ (%d+) %d+);') do
      if p.state ~= 'future' and p.state ~= 'taken' and tonumber(begun) >= past then
        rest = (rest == '' and ';' or rest) .. period .. ';'
      end
    end
    if entered and not ledger and string.find(entered, ' ledger', 1, true) then
      redis.call('HDEL', record, 'ledger', 'ceiling', 'counterCopy', 'replID', 'claim') -- of a period that has ended
    end
    p.keep('entered', ARGV[1], 'used', use(), 'print', firstPrint, 'ahead', rest, ...)
    if ledger and not firstLedger and label > greatest then redis.call('HSET', record, 'ledger', label) end
  end

  local usedByFastClock
  p.operator = tolerate == 'raise' or tolerate == 'takeover'
  if not entered then
    p.state = 'open'
  elseif entered ~= ARGV[1] and entered .. ' ledger' ~= ARGV[1]
    and (tolerate ~= 'read' or entered ~= ARGV[1] .. ' ledger') then
    local conflict
    if tonumber(first) > now then
      if not p.operator then return nil, p.answer('future', entered) end
      p.state = 'future'
    elseif tonumber(ends) <= begins and label > last then
      p.state, usedByFastClock = 'open', p.known(label)
      if p.ahead ~= '' then
        local opened, goes = string.match(p.ahead, '([^;]+ (%d+));$')
        if string.find(p.ahead, ';' .. string.match(ARGV[1], '^%S+ %d+ %d+') .. ';', 1, true) then
          p.state = 'ahead'
        elseif opened and tonumber(goes) > begins then -- another time zone's or day start's
          conflict = opened
        end
      end
    else
      conflict = entered
    end
    -- No operator can know better.
    if label <= greatest and not samePrint or p.known(label) and label < firstPrint then
      return nil, p.answer('print', greatest)
    end
    if conflict and tolerate ~= 'takeover' then return nil, p.answer('conflict', conflict) end
    if conflict then p.state = 'taken' end
  end

  p.last, p.held = p.read(counter)
  p.lost = (not p.last or p.last < highWater)
    and (p.state == 'same' or p.state == 'ahead' or usedByFastClock or highWater > 0 or p.held)
  p.unrecoverable = p.lost
  if ledger then
    local says
    if not id then id, says = master() end
    if not id then return nil, p.answer('unknown', says) end
    p.id = id
    if entered == ARGV[1] then
      p.ceiling = tonumber(kept[6])
      p.intact = p.ceiling and kept[7] == p.held and kept[8] == id and not p.lost
    end
    local ledgerKnows = firstLedger and label >= firstLedger
    p.unrecoverable = p.lost and (usedByFastClock and not ledgerKnows or p.state == 'same' and entered ~= ARGV[1])
  end
  return p
end

