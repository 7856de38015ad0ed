-- enter.lua makes the caller's period the one entered. Scripts include it after rules.lua and writing.lua.
if ours == theirs and ahead == '' and greatest == enteredLabel and label > enteredLabel
  and enteredPast + 0 == begins then -- the usual case: the label extends the last run, with the same print mark
  keep('entered', ARGV[1], 'used', string.sub(usedLabels, 1, -#label - 2) .. label .. ';')
else
  local runs = {} -- the first and the last label of each run, in ascending order
  for l in string.gmatch(usedLabels, '%w+') do table.insert(runs, l) end
  local function free(first) -- reports whether no used label lies between the caller's and first (nil: no bound)
    for i = 1, #runs, 2 do
      if runs[i + 1] > label and not (first and runs[i] >= first) then return false end
    end
    return true
  end
  if (not samePrint or label < firstPrint) and free(firstPrint) then firstPrint = label end
  if ledger and (not firstLedger or label < firstLedger) and free(firstLedger) then firstLedger = label end
  -- Periods opened further ahead stay open, unless the clock went back or another zone is taken over.
  local rest = ''
  for period, begun in string.gmatch(ahead, '([^;]+ (%-?%d+) %-?%d+);') do
    if state ~= 'future' and state ~= 'taken' and tonumber(begun) >= past then
      rest = (rest == '' and ';' or rest) .. period .. ';'
    end
  end
  if not known(label) then
    table.insert(runs, label)
    table.insert(runs, label)
    table.sort(runs)
  end
  -- Two runs become one if the caller's period directly follows the period entered. If there are more than three runs,
  -- the smallest gap below the caller's label is closed or, if there is none, the smallest above it. Labels in the gap
  -- then count as used, which does no harm below the caller's label unless the clock is ahead now.
  local function number(l) return tonumber((string.gsub(l, '%D', ''))) end
  local least, narrowest = #runs > 6 and math.huge or 1
  for i = 2, #runs - 2, 2 do
    local gap = number(runs[i + 1]) - number(runs[i])
    if runs[i + 1] > label then gap = gap + 1e15 end
    if runs[i] == enteredLabel and runs[i + 1] == label and enteredPast + 0 == begins then gap = 0 end
    if gap < least then least, narrowest = gap, i end
  end
  if narrowest then
    table.remove(runs, narrowest)
    table.remove(runs, narrowest)
  end
  local labels = string.gsub(table.concat(runs, ' '), '(%w+) (%w+) ?', '%1-%2;')
  if entered and not ledger and string.find(entered, ' ledger', 1, true) then
    redis.call('HDEL', record, 'ledger', 'ceiling', 'counterCopy', 'replID', 'claim') -- of a period that has ended
  end
  keep('entered', ARGV[1], 'used', labels, 'print', firstPrint, 'ahead', rest)
  if firstLedger == label then redis.call('HSET', record, 'ledger', label) end
end
