-- writing.lua has the functions that write the record and the counter. Scripts include it after rules.lua. An error of
-- a command ends the script, and Redis does not roll scripts back. So everything that may be refused is tried before
-- the first write, and the record is written before the counter.

-- plain returns a number in a form that can be a command's argument. Redis 7.2.0 to 7.2.4 and Valkey 7.2.5 would pass
-- 100000000, and any other number that ends in eight zeros, in the form 1e+8.
local function plain(number) return number % 1e8 == 0 and string.format('%.0f', number) or number end

-- lifetime sets a key's expiry, unless the key already expires later: another caller may keep it longer. Without a
-- record, a counter belongs to nobody, and its expiry is set in any case.
local function lifetime(key, at)
  local left = entered and redis.call('PTTL', key) or 0
  local stays = left > 0 and math.floor((ms + left) / 1000 + 0.5) or 0
  redis.call('EXPIREAT', key, plain(math.max(at, stays)))
end

-- keep sets fields of the record. The record lives until seven days after the last period opened, so it survives
-- weekends and holidays. A later expiry stays: a takeover drops periods opened ahead of time from the record, but their
-- counters remain, and without a record they would count as used. EXPIREAT comes first, since it may be refused; it has
-- no effect on a key that does not exist.
local function keep(...)
  local opened = ahead ~= '' and tonumber(string.match(ahead, '(%-?%d+);$')) or 0
  local ends = math.max(past, opened) + 7 * 24 * 60 * 60
  lifetime(record, ends)
  redis.call('HSET', record, ...)
  if not entered then redis.call('EXPIREAT', record, plain(ends)) end
end

-- lastOpened returns the label of the last period opened, nil if there is none, and whether it ends at an instant.
local function lastOpened(instant)
  local l, ends = string.match(ahead, '(%w+) %S+ (%S+);$')
  if not l then l, ends = enteredLabel, enteredPast end
  return l, tonumber(ends) == instant
end

-- usedBetween reports whether labels between two others may have been used.
local function usedBetween(first, last)
  for from, to in string.gmatch(usedLabels, '(%w+)-(%w+)') do
    if from < last and to > first then return true end
  end
  return false
end

-- noteStart records the start of the period l that is being opened, unless the record already has it. base is the
-- sequence before the start. before is the label of the period opened before l, nil if there is none; adjoins says
-- whether that ends where l begins. A run of starts is not extended over labels that a fast clock may have used, with
-- another start. The record must already have its expiry.
local function noteStart(l, base, before, adjoins)
  if baseOf(l) == base then return end
  starts = string.gsub(starts, l .. '%-' .. l .. ' %d+;$', '') -- noted for a caller that had the claim
  if baseOf(l) ~= base then
    local start = string.format('%.0f;', base + 1)
    local earlier, from, to, same = string.match(starts, '^(.-)(%w+)%-(%w+) (%d+;)$')
    if same == start and to == before and l > to and (adjoins or not usedBetween(to, l)) then
      starts = earlier .. from .. '-' .. l .. ' ' .. start
    else
      starts = starts .. l .. '-' .. l .. ' ' .. start
    end
    if string.find(starts, ';.+;.+;.+;') then
      starts = string.gsub(starts, '%w+%-(%w+) %d+;', function(ends)
        return ends < (enteredLabel or '') and ends < l and '' or nil
      end)
    end
  end
  redis.call('HSET', record, 'starts', starts)
end

-- permitCounter fails if a counter must not be written. Its SET has a condition that is never true, so it writes no
-- value. If the counter exists, permitCounter sets its expiry.
local function permitCounter(key, held, at)
  if held then lifetime(key, at + 0) end
  redis.call('SET', key, '', held and 'NX' or 'XX')
end

-- write sets a counter to a sequence, after permitCounter. held and last are the counter's content so far. at is when a
-- new counter expires; it must be in the future. A counter of 16 or more digits stays as it is.
local function write(key, held, last, seq, at)
  if not held then
    redis.call('SET', key, plain(seq), 'EXAT', at)
  elseif seq ~= last then
    redis.call('SET', key, plain(seq), 'KEEPTTL')
  end
end
