-- serial.lua takes numbers from the counter of a period. With a grant, it creates or raises the counter first.
--
-- KEYS  1 counter, 2 record; then the keys that the options in ARGV 8 need: the stored answer to a request, the counter
--       of the next period, or the lock of the period
-- ARGV  1 to 7  as in rules.lua
--       8  options, absent for none. They are either a string of these letters or a JSON object:
--            "a"  all: issue n numbers or none. Without it, fewer may be issued, because several callers share them
--            "f"  far: do not enter a prepared period, because the server's clock differs too much from the caller's
--          The JSON object has these fields, all of which may be absent:
--            all, far  true, with the meaning of "a" and "f"
--            purpose   "raise" or "takeover": an operator raises the counter to seq
--            seq       the operator's sequence
--            keep      true: refuse a series that has a ledger as a conflict, instead of taking it out of the ledger
--            once      {printed, key, life}: store the answer in KEYS[3] for life milliseconds; its form is described
--                      below
--            next      {period, expires, base, hasFloor, compared}: prepare the given period, "LABEL FIRST PAST". Its
--                      counter is KEYS[3], and the field expires is the time at which this counter expires. base is
--                      described below. hasFloor is true if the caller has a floor, which must be queried first.
--                      compared is true if the caller has compared the clocks
--            grant     permission to open the period or to install a block, with these fields:
--              checked, lease  the server's time at which the caller found that a grant was needed, and the time after
--                      that during which the grant is valid, both in milliseconds
--              base    the first sequence of the period, minus 1; at most the limit. It is ignored if a sequence of the
--                      period has been used. If the floor has returned a sequence that is not larger than base, base
--                      is 0, because the period then had a lower start
--              floor   the largest sequence that may have been used, according to the floor or an operator; at most
--                      10^15-1. It is absent if no floor was queried and the caller is not an operator
--              lock    the value of the caller's lock. The lock is the last key. The script releases it
--              block   [AFTER, UPTO]: the sequences from AFTER+1 to UPTO, at most 10^15, are reserved. The block is
--                      installed only if the next four fields still have the values that were sent to the caller
--              entered, ceiling, id, exists   the period entered, "" for none; the ceiling, -1 for none; the
--                      replication ID of the server; and whether the counter exists
--
-- The reply is an integer or a JSON object (see rules.lua). An integer is the last of the n sequences issued or, with
-- next, the content of the next period's counter. If numbers were issued, the JSON object has one of these statuses:
--   "part"    fewer than n sequences were issued, because there are no more in the period or the block. The field count
--             is their number, and last is the last of them
--   "raised"  with a grant: n sequences were issued, and last is the last of them. The sequences after the one in
--             from, up to the one in upto, were skipped. The field from is "-1" if the counter was lost
--   "there"   with a grant: n sequences were issued without using it, because another caller had opened the period. The
--             field last is the last of them
--   "once"    text is the stored answer
-- If no number was issued, it is a refusal of rules.lua or one of these:
--   "missing" a grant is needed to open the period, to repair its counter, or to install a block. entered, id and
--             ceiling are the values for the grant. The field above is the sequence above which a block must lie. The
--             field last is the last sequence issued, or "-1" if it is unknown, and text is the content of the counter.
--             The other fields are true or absent:
--               exists  the counter exists
--               lost    the counter is lost
--               starts  a block must also lie above base of the grant
--               mixed   processes without a ledger may issue numbers in the period
--               intact  the counter is unchanged since the last number was issued
--               closed  the period must be opened or entered
--   "lost"    like "missing", but only a floor or an operator can find out the last sequence issued
--   "stale"   the grant is not valid any more, and the caller must begin again. The field mixed is as with "missing"
--   "exhausted"  fewer than n numbers are left. text is the last sequence used. If a grant raised the counter, from and
--             upto are as with "raised"; otherwise upto is absent
local time, n, json, id = redis.pcall('TIME'), ARGV[6] + 0, ARGV[8] and string.byte(ARGV[8]) == 123, nil -- 123 is "{"

-- This block handles the usual case, in which the period is open and its counter is at or above the high-water mark. In
-- any other case, the script starts over below. Each command, and each conversion of a string to a number, takes a few
-- percent of the script's time.
local clock = not json and not time.err and time[1] + 0
if clock and clock >= ARGV[2] + 0 and clock < ARGV[3] + 0 then
  local entered, top, copy = nil, ARGV[4] + 0, nil
  if string.find(ARGV[1], ' ledger', 1, true) then
    --include master
    id = master()
    -- If HMGET fails, all elements are nil, so no number is issued here.
    local stored = redis.pcall('HMGET', KEYS[2], 'entered', 'ceiling', 'counterCopy', 'replID')
    entered, copy = stored[1], stored[4] == id and stored[3]
    top = copy and tonumber(stored[2]) and math.min(stored[2], top) or -1
  else
    entered = redis.pcall('HGET', KEYS[2], 'entered')
  end
  if entered == ARGV[1] then
    local content = redis.pcall('GET', KEYS[1])
    -- If the content begins with 1 to 9 and tonumber accepts it, INCRBY either reads the same number or fails.
    local last = content == ARGV[7] and content + 0
      or type(content) == 'string' and (string.byte(content) or 0) > 48 and tonumber(content)
    if last and (content == ARGV[7] or last >= ARGV[7] + 0) and last + n <= top and (not copy or content == copy) then
      -- If the counter is as the caller's process left it, only a person can have removed its expiry, with PERSIST or
      -- with a SET of the same number. That is rare, so the script checks it only once in a hundred numbers.
      local left = content == ARGV[7] and last % 100 >= n and 0 or redis.pcall('PTTL', KEYS[1])
      local issued = type(left) == 'number' and left >= 0 and redis.pcall('INCRBY', KEYS[1], ARGV[6])
      if type(issued) == 'number' then
        if copy then -- if HSET is refused, the next caller reserves a new block
          redis.pcall('HSET', KEYS[2], 'counterCopy', issued % 1e8 == 0 and string.format('%.0f', issued) or issued)
        end
        return issued
      end
    end
  end
end

local options = json and cjson.decode(ARGV[8])
  or {all = string.find(ARGV[8] or '', 'a', 1, true), far = string.find(ARGV[8] or '', 'f', 1, true)}
local purpose, grant, once = options.purpose, options.grant, options.once

-- The stored answer has the form 'PERIOD "DATE" "TEMPLATE" SEQUENCE KEY'. PERIOD is the period of the number. Its form is
-- still that of release 0.5.0. The printed date and the template are quoted as in Go. With WithSharedCounter, they are
-- followed by the quoted type. KEY is the fingerprint of the key that hides the sequence, or "plain" if it is not
-- hidden.
if once and not time.err then
  local answer = redis.call('GET', KEYS[3])
  if answer then
    -- The answer is written again, so that replicas can confirm it. They may not have confirmed the first attempt.
    redis.call('SET', KEYS[3], answer, 'KEEPTTL')
    return cjson.encode({status = 'once', seconds = time[1] + 0, micros = time[2] + 0, text = answer})
  end
end

--include rules

if options.keep and string.find(entered or '', ' ledger', 1, true) then return reply('conflict', entered) end
local limit, expires = ARGV[4] + 0, ARGV[5]
local mixed = entered and not string.find(entered, ' ledger', 1, true) or false

-- plain returns a number in a form that can be an argument of a command. Redis 7.2.0 to 7.2.4 and Valkey 7.2.5 convert
-- 100000000 to 1e+8, and any other number that ends in eight zeros to a similar form.
local function plain(number) return number % 1e8 == 0 and digits(number) or number end

-- baseOf returns the first sequence of a period, minus 1. It returns 0 if the period is neither entered nor prepared.
local function baseOf(l) return (firstOf(l) or 1) - 1 end

-- opened is true if the caller's period is entered or prepared. Its first sequence is then known.
local opened = state == 'ahead' or entered and label == enteredLabel

-- needed returns a reply with the state of the period, which means that a grant is needed.
local function needed(status)
  local above = unused and 0
    or math.max(ledgered and ceiling or 0, last or 0, highWater, lost and opened and baseOf(label) or 0)
  return reply(status, content or '', {entered = entered or '', id = id or '', exists = content and true, lost = lost,
    ceiling = digits(ledgered and ceiling or -1), above = digits(above), last = digits(last or -1), mixed = mixed,
    starts = (unused or lost) and not opened, intact = intact and true, closed = state ~= 'same'})
end

-- This check comes before the functions below, because each run that reaches them has to create them, which takes long.
local closed = lost or state ~= 'same' and (state ~= 'ahead' or options.far)
if closed and not grant and not options.next then
  return needed(unrecoverable and not operator and 'lost' or 'missing')
end

local function stale() return reply('stale', nil, {mixed = mixed}) end

-- lifetime sets the time at which a key expires. If the key expires later than that, its expiry does not change,
-- because another caller may have a longer retention. If there is no record, the expiry is set in any case.
local function lifetime(key, at)
  local left = entered and redis.call('PTTL', key) or 0
  local stays = left > 0 and math.floor((ms + left) / 1000 + 0.5) or 0
  redis.call('EXPIREAT', key, plain(math.max(at, stays)))
end

-- save writes the record. The record expires seven days after the end of the last period that is entered or prepared,
-- so that it outlives weekends and holidays. EXPIREAT, and an HDEL that deletes nothing, come before the first write,
-- so that nothing has been written if the server refuses one of them. EXPIREAT has no effect if the record does not
-- exist yet, so in that case it is called again after the first write. used, starts and claim are fields of release
-- 0.5.0.
local function save()
  local aheadPast = ahead and tonumber(string.match(ahead, '%S+$')) or 0
  local ends = math.max(past, aheadPast) + 7 * 24 * 60 * 60
  lifetime(record, ends)
  -- A field that must be deleted is false. If it were nil, the table would lack it, and it would keep its old value.
  local write, delete = {'entered', entered}, {'used', 'starts', 'claim'}
  for name, value in pairs({first = first, ahead = ahead, firstAhead = firstAhead, jump = jump, doubtful = doubtful,
    print = print, ledger = ledger, ceiling = ledger and ceiling and plain(ceiling),
    counterCopy = ledger and counterCopy, replID = ledger and replID}) do
    table.insert(value and write or delete, name)
    if value then table.insert(write, value) end
  end
  redis.call('HDEL', record, '')
  redis.call('HSET', record, unpack(write))
  if stored[1] then redis.call('HDEL', record, unpack(delete)) else redis.call('EXPIREAT', record, plain(ends)) end
end

-- startsAt returns the first sequence of a period that begins above base, as it is stored in the record.
local function startsAt(base) return base > 0 and digits(base + 1) end

-- enter makes the caller's period the period entered. The parameter starts is its first sequence, or false if that is
-- 1.
local function enter(starts)
  if state ~= 'same' then
    if entered and label < enteredLabel then
      local begun = label
      if left and left <= label and label < jumped then begun = jumped end -- the labels in the jump were never used
      if from and from < begun then begun = from end
      doubtful, jump = begun .. ' ' .. largest, false
    elseif entered and label > enteredLabel and enteredPast ~= begins then
      jump = enteredLabel .. ' ' .. label
    end
    if state == 'future' or state == 'taken' or ahead and tonumber(string.match(ahead, '^%S+ (%S+)')) < past then
      ahead, firstAhead = false, false
    end
  end
  if entered and not samePrint then print = label end
  -- Labels up to the largest one may have been used without the ledger. No label sorts between LARGEST and "LARGEST+".
  if not ledgered then ledger = false elseif not ledger then ledger = label < largest and largest .. '+' or label end
  first = starts or false
  entered = ARGV[1]
end

-- permit fails if the server would refuse to write a counter. The condition of the SET is never true, so it writes
-- nothing. If the counter exists, permit also sets its expiry.
local function permit(key, content, at)
  if content then lifetime(key, at + 0) end
  redis.call('SET', key, '', content and 'NX' or 'XX')
end

-- write sets a counter to seq. content and number are its present content. permit must have been called before. A
-- counter of 16 or more digits is not changed, because its number and seq are then both 10^15.
local function write(key, content, number, seq, at)
  if not content then
    redis.call('SET', key, plain(seq), 'EXAT', at)
  elseif seq ~= number then
    redis.call('SET', key, plain(seq), 'KEEPTTL')
  end
end

-- remember stores the answer to a request.
local function remember(issued)
  local period = string.gsub(ARGV[1], ' 0%.6 #', ' #', 1)
  local answer = period .. ' ' .. once.printed .. ' ' .. digits(issued) .. ' ' .. once.key
  redis.call('SET', KEYS[3], answer, 'PX', plain(once.life))
end

-- prepare opens the next period ahead of time. It may be repeated until the period begins, because no number of the
-- period is issued before that.
local function prepare(p)
  if state ~= 'same' then
    if ledgered and last and last >= 1e15 - 1 then return reply('exhausted', content) end -- no block can follow
    return stale()
  end
  local name, begun = string.match(p.period, '^(%S+) (%S+)')
  if ahead ~= p.period then
    if ahead or enteredPast ~= tonumber(begun) then return reply('conflict', ahead or entered) end
    if not p.compared then return needed('missing') end
  end
  local number, found = read(KEYS[3])
  local mayBeUsed = (ahead == p.period or found or known(name)) and true -- a boolean, like lost
  local floor = grant and grant.floor
  if not number and not floor then
    lost, content = mayBeUsed, found
    if p.hasFloor or mayBeUsed then return needed(p.hasFloor and 'missing' or 'lost') end
  end
  local base = mayBeUsed and baseOf(name) or p.base
  local used = math.max(number or base, floor or 0)
  if ahead ~= p.period then ahead, firstAhead = p.period, not mayBeUsed and startsAt(p.base) end
  permit(KEYS[3], found, p.expires)
  save()
  write(KEYS[3], found, number, used, p.expires)
  return used
end

-- take issues n sequences from a counter that is not lost. It issues fewer if the options allow it and there are no
-- more.
local function take()
  local top = ledgered and (intact and math.min(limit, ceiling) or -1) or limit
  if ledgered and not intact then
    if state == 'same' and last and math.max(last, highWater) + n > limit then
      return reply('exhausted', digits(math.max(last, highWater)))
    end
    return needed('missing')
  end
  local count = math.min(n, math.max(top - last, 0))
  if count < n then
    if last >= limit or options.all and last + n > limit then return reply('exhausted', content) end
    if count < 1 or options.all then return needed('missing') end
  end
  if once and n > 0 then redis.call('SET', KEYS[3], '', 'XX') end -- writes nothing, but fails if SET is refused
  if state == 'ahead' then
    enter(firstAhead)
    save()
  elseif old then
    save()
  end
  if redis.call('PTTL', counter) < 0 then -- the expiry was removed, for example by SET or PERSIST
    redis.call('EXPIREAT', counter, expires)
  end
  -- If last is 10^15, count is 0, and INCRBY may fail.
  local issued = last < 1e15 and redis.call('INCRBY', counter, count) or last
  -- The copy is written after the counter, so that the block can still be used if INCRBY is refused. If the HSET is
  -- refused, the next caller reserves a new block.
  if ledgered then redis.pcall('HSET', record, 'counterCopy', plain(issued)) end
  if once and n > 0 then remember(issued) end
  if count < n then return reply('part', nil, {last = digits(issued), count = count}) end
  return issued
end

if options.next then return prepare(options.next) end
if operator and not grant then -- no grant is needed if the counter has already reached the operator's sequence
  return (last or 0) < options.seq and needed('missing') or take()
end
if not grant then return take() end
if unrecoverable and not grant.floor then return needed('lost') end
if ms < grant.checked or ms >= grant.checked + grant.lease then return stale() end
if grant.block and (grant.entered ~= (entered or '') or grant.ceiling ~= (ceiling or -1) or grant.id ~= id
  or grant.exists ~= (content and true or false)) then
  return stale()
end
if ledgered and not grant.block then return stale() end
-- If the period is open by now, another caller has opened it since the grant was prepared. The numbers are then taken
-- from its counter, which is not raised.
if not operator and state == 'same' and not lost and not grant.floor and not grant.block then
  local issued = take()
  return type(issued) == 'number' and reply('there', nil, {last = digits(issued), count = n}) or issued
end

-- The rest of the script creates or raises the counter of the period, and issues n sequences. This is safe even if the
-- script runs late, because all rules have been applied again and no counter is lowered.
local floor, block = grant.floor, grant.block
-- If the period is neither entered nor prepared, its first sequence is not stored, even if its counter once existed.
local start = opened and baseOf(label) or grant.base
local base = (unused or lost) and start or 0
-- With a ledger, the counter may be below its copy in the record, which shows a loss that the caller did not detect.
local behind = operator and ledgered and label == enteredLabel and (tonumber(counterCopy) or 0) > (last or 0)
local before = (lost or behind) and -1 or math.max(last or 0, base)
local used, upto = math.max(last or 0, base, floor or 0, highWater), nil
if block then
  upto = block[2]
  -- If the block directly follows the previous block, the counter continues without a gap.
  if not intact or block[1] ~= ceiling then used = math.max(used, block[1]) end
  -- If the period is exhausted, the rest of the previous block is not skipped, because smaller calls can still use it.
  if used + n > limit and intact and last < ceiling and not operator then return reply('exhausted', content) end
  if used + n > upto and used + n <= limit then return stale() end
  if used > limit then -- a larger limit applied before, or the block lies above the limit
    used = math.max(limit, last or 0)
    upto = used
  end
end
local enough = n == 0 or used + n <= limit
local issued = enough and used + n or used
permit(counter, content, expires)
if once and n > 0 then redis.call('SET', KEYS[3], '', 'XX') end -- writes nothing, but fails if SET is refused
-- A new period has the counter start. If the counter is smaller, the period had a lower start. If it is equal, the period
-- was probably prepared, and the record has lost that because of a takeover or a clock that was set back.
local startIsKnown = opened or base == start or (last or 0) >= start
enter(startsAt(startIsKnown and start or 0))
if block then ceiling, counterCopy, replID = upto, issued == last and content or plain(issued), id end
save()
write(counter, content, last, issued, expires)
if grant.lock and redis.pcall('GET', KEYS[#KEYS]) == grant.lock then redis.pcall('DEL', KEYS[#KEYS]) end
if not enough then
  local text = issued == last and content or digits(issued)
  return reply('exhausted', text, {from = digits(before), upto = digits(math.min(used, 1e15))})
end
if once and n > 0 then remember(issued) end
issued = math.min(issued, 1e15)
if used <= before then return issued end
return reply('raised', nil, {last = digits(issued), count = n, from = digits(before), upto = digits(issued - n)})
