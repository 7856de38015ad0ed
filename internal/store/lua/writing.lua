-- writing.lua, functions only: they write the record and the counter, behind rules.lua. The error of a command is the script's. Scripts
-- are not rolled back. So whatever may be refused is asked for before the first write, and the record is written before the counter.

-- plain returns a number as a command's argument. Redis 7.2.0 to 7.2.4 and Valkey 7.2.5 pass a number that ends in eight zeros as 1e+8.
local function plain(number) return number % 1e8 == 0 and string.format('%.0f', number) or number end

-- lifetime lets a key expire at a time, or when it would anyway if that is later, since another caller may keep it longer. A counter
-- without a record is nobody's.
local function lifetime(key, at)
  local left = entered and redis.call('PTTL', key) or 0
  local stays = left > 0 and math.floor((ms + left) / 1000 + 0.5) or 0
  redis.call('EXPIREAT', key, plain(math.max(at, stays)))
end

-- keep sets fields of the record, which lives for seven days after the last period opened: it is still there after a weekend or
-- a holiday. A later expiry stays, unless the caller's label is later than all that were used. EXPIREAT may be refused, and does
-- nothing to a key that is not there.
local function keep(...)
  local opened = ahead ~= '' and tonumber(string.match(ahead, '(%d+);$')) or 0
  local ends = math.max(past, opened) + 7 * 24 * 60 * 60
  if label > greatest then redis.call('EXPIREAT', record, plain(ends)) else lifetime(record, ends) end
  redis.call('HSET', record, ...)
  if not entered then redis.call('EXPIREAT', record, plain(ends)) end
end

-- permitCounter fails if a counter must not be written. It writes no value, since the condition is never true. Of a counter that is
-- there it sets the expiry.
local function permitCounter(key, held, at)
  if held then lifetime(key, at + 0) end
  redis.call('SET', key, '', held and 'NX' or 'XX')
end

-- write makes a counter hold a sequence, after permitCounter; held and last are what it holds. A new one expires at a time in the
-- future. One of 16 digits and more stays as it is.
local function write(key, held, last, seq, at)
  if not held then
    redis.call('SET', key, plain(seq), 'EXAT', at)
  elseif seq ~= last then
    redis.call('SET', key, plain(seq), 'KEEPTTL')
  end
end
