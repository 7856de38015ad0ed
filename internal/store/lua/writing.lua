-- writing.lua, functions only: they write the record and the counter, behind rules.lua. The error of a command is the script's. Scripts
-- are not rolled back. So whatever may be refused is asked for before the first write, and the record is written before the counter.

-- lifetime sets when a key expires: then, or when it does already if that is later, since another caller may keep it longer. A counter
-- without a record is nobody's.
local function lifetime(key, at)
  local left = entered and redis.call('PTTL', key) or 0
  local stays = left > 0 and math.floor((ms + left) / 1000 + 0.5) or 0
  redis.call('EXPIREAT', key, math.max(at, stays))
end

-- keep sets fields of the record, which lives for seven days after the last period opened: it is still there after a weekend or
-- a holiday. It lives longer for a later label that a clock was ahead to. EXPIREAT may be refused, and does nothing to a key that is
-- not there.
local function keep(...)
  local opened = ahead ~= '' and tonumber(string.match(ahead, '(%d+);$')) or 0
  local ends = math.max(past, opened) + 7 * 24 * 60 * 60
  if greatest > label then lifetime(record, ends) else redis.call('EXPIREAT', record, ends) end
  redis.call('HSET', record, ...)
  if not entered then redis.call('EXPIREAT', record, ends) end
end

-- permitCounter fails if a counter must not be written. It sets nothing, since the condition is never true, but when a counter that is
-- there expires.
local function permitCounter(key, held, at)
  if held then lifetime(key, at + 0) end
  redis.call('SET', key, '', held and 'NX' or 'XX')
end

-- write makes a counter hold a sequence, after permitCounter; held and last are what it holds. A new one expires at a time in the
-- future. One of 16 digits and more stays as it is.
local function write(key, held, last, seq, at)
  if not held then
    redis.call('SET', key, seq, 'EXAT', at)
  elseif seq ~= last then
    redis.call('SET', key, seq, 'KEEPTTL')
  end
end

-- enter makes the caller's period the one entered, and sets the fields given besides.
local function enter(...)
  if ours == theirs and label >= firstPrint and ahead == ''
    and greatest == enteredLabel and label > enteredLabel and enteredPast + 0 == begins then -- as usual, the last run goes on
    keep('entered', ARGV[1], 'used', string.sub(used, 1, -#label - 2) .. label .. ';', ...)
  else
    local runs = {} -- the first and the last label of each run of those used, in ascending order
    for l in string.gmatch(used, '%w+') do table.insert(runs, l) end
    if not samePrint or label < firstPrint then
      local new = true -- from the label on, no other print mark was used
      for i = 1, #runs, 2 do new = new and (runs[i + 1] < label or runs[i] >= firstPrint) end
      if new then firstPrint = label end
    end
    -- What was opened further ahead stays so, unless the clock went back or the calendar is another.
    local rest = ''
    for period, begun in string.gmatch(ahead, '([^;]+ (%d+) %d+);') do
      if state ~= 'future' and state ~= 'taken' and tonumber(begun) >= past then
        rest = (rest == '' and ';' or rest) .. period .. ';'
      end
    end
    if not known(label) then
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
      if runs[i] == enteredLabel and runs[i + 1] == label and enteredPast + 0 == begins then gap = 0 end
      if gap < least then least, at = gap, i end
    end
    if at then
      table.remove(runs, at)
      table.remove(runs, at)
    end
    local labels = string.gsub(table.concat(runs, ' '), '(%w+) (%w+) ?', '%1-%2;')
    if entered and not ledger and string.find(entered, ' ledger', 1, true) then
      redis.call('HDEL', record, 'ledger', 'ceiling', 'counterCopy', 'replID', 'claim') -- of a period that has ended
    end
    keep('entered', ARGV[1], 'used', labels, 'print', firstPrint, 'ahead', rest, ...)
  end
  if ledger and not firstLedger and label > greatest then redis.call('HSET', record, 'ledger', label) end
end
