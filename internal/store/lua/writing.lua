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
