-- judge.lua comes first in every script that judges a period. It has functions only, and holds every rule about periods once.
--
-- The record is a hash. Its fields:
--   entered  the last period entered: "LABEL FIRST PAST", its label, its first instant and the first instant after it in Unix
--            seconds; behind that " #PRINT" if its numbers have a print mark, and " ledger" if they are set aside in one. Periods
--            are compared by these, never by the name of a time zone. A print mark is of all that could make two processes print
--            different sequences alike.
--   ahead    absent, or the periods that follow it without a gap and were opened ahead of time: ";LABEL FIRST PAST;...;"
--   and of the period entered, with a ledger:
--   ceiling  the last sequence that was set aside
--   copy     of the counter
--   reign    the replication ID of the server that issued last
--   claim    "TOKEN UNTIL": who may install a block, until then, in milliseconds by the server's clock
--   was4 ... was14, wasW, wasQ, was3  where the kind of periods has changed: the last period entered of a kind, which is how many
--            digits its labels have, W for weeks, Q for quarters and 3 for "all". Of the kind of the period entered: the last one
--            that a clock or a calendar had entered, which was ahead
--   used4 ...  the labels of a kind that were ever entered, as runs in ascending order: "FROM-TO;FROM+TO;", or
--            "LABEL-;" for one alone; + marks numbers set aside in a ledger. It may name labels that were never entered, and omits
--            none that was: beyond 64 bytes, up to which Redis keeps a hash compact, two runs become one. After Redis's clock was
--            ahead, labels above the period entered are suspect: their numbers may have been issued.
--
-- KEYS  each script has its own. A counter is a string, the last sequence issued in its period.
-- ARGV  1  period   that the caller thinks it is in, as the record would have it
--       2  from     the first instant of the part of it in which the same date is printed, Unix seconds
--       3  to       the first instant after that part
--       4  limit    the largest sequence, at most 10^15-1
--       5  expires  when the counter does, Unix seconds, at least the end of the period
--
-- Replies that issue nothing are {status, seconds, microseconds, ...}: the server's time, then the details. Of every script:
--   "clock"             the server's clock is not in that part of the period
--   "conflict" ENTERED  the period entered, as in the record, overlaps the caller's, or has its label with other bounds, or its
--                       label or a later one of its kind was used before, or its numbers are set aside in a ledger, which the
--                       caller does not have
--   "print" PERIOD      numbers of the caller's label were issued with another print mark, as this period's, as in the record
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

-- judge returns what is known of the caller's period, counter and record; or nil and a reply. time is the server's; mark is the
-- greatest sequence of the period that the caller has seen, 0 if none; id and entered are the server's replication ID and the
-- record's field if the script has read them. leave is what else the caller copes with:
--   "future"    what stands so, instead of a refusal
--   "takeover"  that and a conflict, which stands as "taken"
--   "read"      a ledger that it does not have: it reads only
--
-- The fields of what it returns:
--   stands   "same"    the caller's period is the one entered
--            "open"    it may be opened: there is no record, or the period entered has ended and the caller's label is later
--                      than the last of its kind, unless a wrong clock entered that
--            "ahead"   the same, and it was opened ahead of time: it only has to be entered
--            "future"  the period entered begins after now: the server's clock went back
--            "taken"   another calendar's, or another's ledger, is in force, and the caller takes over
--   held     what the counter holds, as text; false if there is none
--   last     the same as a number, see number
--   lost     the counter was there once, and is gone, below the mark or no number
--   untold   it is lost, and no ledger can tell how far it had come: there is none, or it was turned on later
--   id       with a ledger: the server's replication ID
--   ceiling  with a ledger: the record's, nil if there is none for the caller's period
--   intact   with a ledger: the counter is as the last number issued has left it
--   entered, ahead  the record's, false and "" if there is none
--   milliseconds    the server's time
--   answer, read, number, lifetime, keep, permit, known, enter  functions, see there
local function judge(time, counter, record, mark, leave, id, entered)
  local now = time[1] + 0
  local j = {milliseconds = now * 1000 + math.floor(time[2] / 1000)}

  function j.answer(status, text, one, two) return {status, now, time[2] + 0, text or '', one or 0, two or 0} end

  if now < ARGV[2] + 0 or now >= ARGV[3] + 0 then return nil, j.answer('clock') end
  local bounds, begins, past = string.match(ARGV[1], '^(%S+ (%d+) (%d+))')
  begins, past = begins + 0, past + 0

  -- read returns what a counter holds, false if it is not there. Of all errors only WRONGTYPE tells what a key holds.
  function j.read(key)
    local held = redis.pcall('GET', key)
    if type(held) ~= 'table' then return held end
    return string.find(held.err, 'WRONGTYPE', 1, true) and 'another type of key' or redis.call('GET', key)
  end

  -- number returns what a counter holds, nil for none and for what INCRBY would not take for a number; at most 10^15, which is
  -- beyond every limit and still exact as a double.
  function j.number(held)
    if held and (held == '0' or string.find(held, '^[1-9]%d*$')) then
      return #held > 15 and 1e15 or tonumber(held)
    end
  end

  -- lifetime sets when a key expires: then, or when it does already if that is later, since another caller may keep it longer.
  -- A counter without a record is nobody's. Call it before the key is written, since EXPIREAT may be refused and does nothing to
  -- a key that is not there, and again afterwards.
  function j.lifetime(key, at)
    local left = entered and redis.call('PTTL', key) or 0
    local stays = left > 0 and math.floor((j.milliseconds + left) / 1000 + 0.5) or 0
    redis.call('EXPIREAT', key, string.format('%.0f', math.max(at, stays)))
  end

  -- keep has the record live for seven days after the last period opened: it is still there after a weekend or a holiday.
  function j.keep()
    local opened = tonumber(string.match(j.ahead, '(%d+);$') or 0)
    j.lifetime(record, math.max(past, opened) + 7 * 24 * 60 * 60)
  end

  -- permit fails if key must not be set. It sets nothing, since the condition is never true.
  function j.permit(key, there) redis.call('SET', key, '', there and 'NX' or 'XX') end

  local function labelOf(period) return string.match(period, '^%S+') end

  -- kindOf returns what tells a label's kind from others, see the field was.
  local function kindOf(label) return string.match(label, '[WQ]') or #label end

  local function printOf(period) return string.match(period, ' #%x+') end

  -- lastAs returns the label of the last period entered that is of this label's kind, and the instant after it; or nil.
  local function lastAs(label)
    local period = entered
    if not period or kindOf(labelOf(period)) ~= kindOf(label) then
      period = redis.call('HGET', record, 'was' .. kindOf(label)) or ''
    end
    local last, ends = string.match(period, '^(%S+) %d+ (%d+)')
    return last, tonumber(ends)
  end

  -- conflict refuses on account of a period, but for a caller who takes over.
  local function conflict(with)
    if leave ~= 'takeover' then return j.answer('conflict', with) end
    j.stands = 'taken'
  end

  -- runsOf returns the runs of labels of this one's kind that were ever entered, and a function that finds a label's run. 0.1.0
  -- writes no runs: what lies between the last run and a last label that is in none may have been used.
  local function runsOf(label)
    local runs = {}
    local function covers(this)
      for _, run in ipairs(runs) do
        if run.from <= this and this <= run.to then return run end
      end
    end
    for from, how, to in string.gmatch(redis.call('HGET', record, 'used' .. kindOf(label)) or '', '(%w*)([-+])(%w*);') do
      table.insert(runs, {from = from, how = how, to = to == '' and from or to})
    end
    local last = lastAs(label)
    if last and not covers(last) then
      local at = #runs
      while at > 0 and runs[at].to > last do at = at - 1 end
      if at == 0 then
        table.insert(runs, 1, {from = '', how = '-', to = last})
      else
        runs[at].to, runs[at].how = last, '-'
      end
    end
    return runs, covers
  end

  -- known returns whether the label of a period was ever entered: nil, '-', or '+' with a ledger.
  function j.known(period)
    local _, covers = runsOf(labelOf(period))
    local run = covers(labelOf(period))
    return run and run.how
  end

  local ledger, own = string.find(ARGV[1], ' ledger', 1, true), labelOf(ARGV[1])

  -- alike returns a period with another print mark if numbers of the caller's label may have been issued with that, else nil. No
  -- operator can know better.
  local function alike()
    if not j.known(ARGV[1]) then return nil end
    for _, period in ipairs({entered, redis.call('HGET', record, 'was' .. kindOf(own)) or nil}) do
      local label = labelOf(period)
      if kindOf(label) == kindOf(own) and label >= own and printOf(period) ~= printOf(ARGV[1]) then return period end
    end
  end

  -- used returns the runs as the record holds them, with one more label: the next one of a run, if it follows the period entered
  -- and nothing else is different, or a run of its own.
  local function used()
    local runs, covers = runsOf(own)
    local how = ledger and '+' or '-'
    local run = covers(own)
    local follows = entered and j.stands ~= 'future' and tonumber(string.match(entered, '^%S+ %d+ (%d+)')) == begins
    local previous = follows and covers(labelOf(entered))
    if run then
      run.how = how == '-' and how or run.how
    elseif previous and previous.how == how and previous.to == labelOf(entered) then
      previous.to = own
    else
      local at = 1
      while runs[at] and runs[at].to < own do at = at + 1 end
      table.insert(runs, at, {from = own, how = how, to = own})
    end
    while true do
      local text = ''
      for _, r in ipairs(runs) do
        text = text .. r.from .. r.how .. (r.to == r.from and '' or r.to) .. ';'
      end
      if #text <= 64 or #runs == 1 then return text end
      -- Two runs become one, and what lies between counts as used. Below the caller's period that does no harm, unless the clock
      -- is ahead now: so the smallest gap goes, and none above it before.
      local at, least
      for i = 1, #runs - 1 do
        local function number(of) return tonumber((string.gsub(of, '%D', ''))) or 0 end
        local gap = number(runs[i + 1].from) - number(runs[i].to)
        gap = runs[i + 1].from > own and gap + 1e15 or gap
        if not least or gap < least then at, least = i, gap end
      end
      local lower = table.remove(runs, at)
      runs[at].from, runs[at].how = lower.from, lower.how == '-' and '-' or runs[at].how
    end
  end

  -- enter makes the caller's period the one entered, and sets the fields given besides. What was opened further ahead stays so,
  -- unless the clock went back or the calendar is another.
  function j.enter(...)
    j.keep()
    local fields = {'entered', ARGV[1], 'used' .. kindOf(own), used(), ...}
    local before = entered and labelOf(entered)
    local ahead = before and kindOf(before) == kindOf(own) and before > own
    if ahead or before and j.stands ~= 'future' and kindOf(before) ~= kindOf(own) then
      table.insert(fields, 'was' .. kindOf(before))
      table.insert(fields, entered)
    end
    local rest = ''
    for one, first in string.gmatch(j.ahead, '([^;]+ (%d+) %d+);') do
      if j.stands ~= 'future' and j.stands ~= 'taken' and tonumber(first) >= past then rest = rest .. one .. ';' end
    end
    if rest ~= '' then
      rest = ';' .. rest
      table.insert(fields, 'ahead')
      table.insert(fields, rest)
    elseif j.ahead ~= '' then
      redis.call('HDEL', record, 'ahead')
    end
    j.ahead = rest
    if entered and not ledger and string.find(entered, ' ledger', 1, true) then
      redis.call('HDEL', record, 'ceiling', 'copy', 'reign', 'claim') -- of a period that has ended
    end
    redis.call('HSET', record, unpack(fields))
    j.keep()
  end

  entered = type(entered) == 'string' and entered or redis.call('HGET', record, 'entered')
  j.entered, j.ahead = entered, redis.call('HGET', record, 'ahead') or ''
  j.stands = 'same'
  local suspect -- the period to open has a label that was entered before, by a clock that was ahead: '-', or '+' with a ledger
  if not entered then
    j.stands = 'open'
  elseif entered ~= ARGV[1] and entered .. ' ledger' ~= ARGV[1] and (leave ~= 'read' or entered ~= ARGV[1] .. ' ledger') then
    local refusal
    local first, ends = string.match(entered, '^%S+ (%d+) (%d+)')
    if first and tonumber(first) > now then
      j.stands = 'future'
    elseif first and tonumber(ends) <= begins then
      -- A label is used once: where zones are more than a period apart its numbers would repeat. One that was entered last, but
      -- has not ended, was entered by a wrong clock.
      local last, over = lastAs(own)
      local opened, goes = string.match(j.ahead, '([^;]+ (%d+));$')
      j.stands = 'open'
      suspect = j.known(own)
      if last and over <= now and own <= last then
        refusal = conflict(entered)
      elseif string.find(j.ahead, ';' .. bounds .. ';', 1, true) then
        j.stands = 'ahead'
      elseif opened and tonumber(goes) > begins then -- another calendar's
        refusal = conflict(opened)
      end
    else
      refusal = conflict(entered)
    end
    local other = (j.stands ~= 'future' or leave == 'future' or leave == 'takeover') and alike()
    if other then return nil, j.answer('print', other) end
    if refusal then return nil, refusal end
  end

  j.held = j.read(counter)
  j.last = j.number(j.held)
  j.lost = (not j.last or j.last < mark) and (j.stands == 'same' or j.stands == 'ahead' or suspect or mark > 0 or j.held)
  j.untold = j.lost
  if ledger then
    local says
    if not id then
      id, says = master()
      if not id then return nil, j.answer('unknown', says) end
    end
    j.id = id
    if entered == ARGV[1] then
      local block = redis.call('HMGET', record, 'ceiling', 'copy', 'reign')
      j.ceiling = tonumber(block[1])
      j.intact = j.ceiling and block[2] == j.held and block[3] == id and not j.lost
    end
    j.untold = j.lost and (suspect == '-' or j.stands == 'same' and entered ~= ARGV[1])
  end
  if j.stands == 'future' and leave ~= 'future' and leave ~= 'takeover' then return nil, j.answer('future', entered) end
  return j
end

