-- take: increment a counter that exists, without a lock, for one type or for several. Within a script, no key expires.
--
-- KEYS  for each type: counter, record; for a single type, a request (see recall.lua) may follow
-- ARGV  1 to 5  as in rules.lua
--       6 and on, for each type:
--          n          how many numbers
--          highWater  the greatest sequence that the caller has seen, 0 if none
--     then, unless they would be "issue" and "0" and there is neither a ledger nor a request:
--          purpose  "issue"  fewer than n numbers will do: callers share them
--                   "all"    all n or none; n = 0 asks for the state of the period
--                   The others claim a block, for a single type with a ledger, and take all n or none. Each says which
--                   counter may need one:
--                   "ceiling"  a counter that exists
--                   "open"     also a missing one: the caller has the lock
--                   "floor"    the same, and the caller has a floor to ask: also a lost one that no ledger knows
--                   "raise"    any, whatever the state, for an operator's Raise
--                   "takeover" any, whoever owns the period, for an operator's Takeover
--          clock    "1" if the server's clock is so far from the caller's that a prepared period must not be entered
--                   without a second look, else "0"
--     for a claim:
--          token    unique
--          lease    how long the claim lasts, milliseconds
--          past     when it ends at the latest, which is when the lock ends, milliseconds by the server's clock; "0"
--                   without a lock
--          base     the sequence before the period's first
--     for a request, at the end:
--          printed  the date and the template, with WithSharedCounter also the type, as in recall.lua
--          key      fingerprint of the key that hides the sequence, or "plain"
--          life     lifetime of the answer, milliseconds
--
-- Reply for a single type: an integer, the last of the n numbers issued; the reply of recall.lua; or
--   "part" WHY COUNT LAST  only COUNT numbers were issued, up to LAST, integers. WHY is "exhausted" if they are the
--                       last of the period, and "ceiling" if they are the last that are set aside.
-- If nothing is issued, it is a status of rules.lua or
--   "lost" HELD         the counter once existed; HELD is its content now, "" if it is gone
--   "missing" LOST      the period must be opened, a counter without a record adopted, or a prepared period entered by
--                       a caller that must look twice; LOST is "lost" if a ledger will repair a lost counter, else ""
--   "ceiling" LOST      a block must be set aside first; LOST as for "missing"
--   "exhausted" LAST    fewer than n numbers are left; LAST is the last sequence issued, as text, since it may be too
--                       large for a Lua number
--   "reserve" ID ABOVE UNUSED  a block must be set aside, and the caller has the claim. ID is the server's replication
--                       ID. The block must lie above ABOVE, an integer. UNUSED is 0 if something of the period was
--                       used, else 1, or 2 if a caller with a start has had the claim before: it may have set aside a
--                       sequence that was not used. UNUSED is greater by 4 if callers without a ledger may issue
--                       numbers of the period, and by 8 if the counter of the period entered is as this server's last
--                       number left it.
--   "claimed"           another caller has the claim
--   "late"              the caller's lock has expired
-- Reply for several types: an array of such replies. If a type's commands fail, its element is the error, and the other
-- types are served.

-- takeByRules takes numbers of the i-th type by all the rules. It gets what it uses as arguments, because each captured
-- local would slow down every call.
local function takeByRules(time, id, i, at)
  local counter, record, n, highWater = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i + 4] + 0, ARGV[2 * i + 5] + 0
  local purpose, request, limit = ARGV[at] or 'issue', #KEYS == 3 and KEYS[3], ARGV[4] + 0
  --include rules
  --include writing

  -- ask gives the caller the claim to a block, if it wants one and nobody else has the claim. A claim that would last
  -- longer than a lease was made before the server's clock went back, and is ignored.
  local function ask()
    if purpose == 'issue' or purpose == 'all' then return answer('ceiling', lost and 'lost' or nil) end
    local mine, lease = ARGV[at + 2], ARGV[at + 3] + 0
    local token, expiry = string.match(redis.call('HGET', record, 'claim') or '', '^(%S+) (%-?%d+)$')
    expiry = tonumber(expiry)
    if token and token ~= mine and ms < expiry and expiry <= ms + lease and state ~= 'taken' then
      return answer('claimed')
    end
    local ends = ms + lease
    if ARGV[at + 4] ~= '0' then ends = math.min(ends, ARGV[at + 4]) end
    if ends <= ms then return answer('late') end
    keep('claim', mine .. ' ' .. string.format('%.0f', ends))
    local marks = (entered and not string.find(entered, ' ledger', 1, true) and 4 or 0) + (intact and 8 or 0)
    if not unused then
      return answer('reserve', id, math.max(ceiling or 0, last or 0, highWater, lost and baseOf(label) or 0), marks)
    end
    local again, base = baseOf(label) > 0, ARGV[at + 5] + 0
    if base > 0 then noteStart(label, base, lastOpened(begins)) end
    return answer('reserve', id, 0, marks + (again and 2 or 1))
  end

  if unrecoverable and purpose ~= 'floor' and not operator then return answer('lost', held or '') end
  local top = intact and math.min(limit, ceiling) or limit -- the last sequence that may be issued now
  local closed = state == 'open' or state == 'ahead' and ARGV[at + 1] == '1'
  if not id then
    if closed then return answer('missing') end
  elseif operator then
    return ask()
  elseif not intact then
    if state == 'same' and last and math.max(last, highWater) + n > limit then
      return answer('exhausted', string.format('%.0f', math.max(last, highWater)))
    end
    if (closed or not last) and purpose ~= 'open' and purpose ~= 'floor' then
      return answer('missing', lost and 'lost' or nil)
    end
    return ask()
  end

  local count = math.min(n, math.max(top - last, 0))
  if count < n then
    if last >= limit or purpose ~= 'issue' and last + n > limit then return answer('exhausted', held) end
    if count < 1 or purpose ~= 'issue' then return ask() end
  end
  if request and n > 0 then redis.call('SET', request, '', 'XX') end -- fails if it must not be written; sets nothing
  if state == 'ahead' then
    --include enter
  end
  if redis.call('PTTL', counter) < 0 then -- a SET or PERSIST by hand has removed the expiry
    redis.call('EXPIREAT', counter, ARGV[5])
  end
  -- At 10^15, no number is issued, and INCRBY may fail.
  local issued = last < 1e15 and redis.call('INCRBY', counter, count) or last
  -- The copy is written after the counter, so the block stays in use if INCRBY is refused. If the copy is refused, the
  -- next take has a new block set aside.
  if intact then redis.pcall('HSET', record, 'counterCopy', plain(issued)) end
  if request and n > 0 then
    --include remember
  end
  if count < n then return answer('part', issued == limit and 'exhausted' or 'ceiling', count, issued) end
  return issued
end

--include time
local types = #KEYS > 3 and #KEYS / 2 or 1
local now, at = time[1] + 0, 6 + 2 * types
local usual = now >= ARGV[2] + 0 and now < ARGV[3] + 0
local id
if ARGV[at] then
  local request = KEYS[3]
  if #KEYS == 3 then
    --include recall
  end
  local ledger = string.find(ARGV[1], ' ledger', 1, true)
  if ledger then
    --include master
    id = master()
  end
  usual = usual and #KEYS ~= 3 and (id or not ledger) and ARGV[at] ~= 'raise' and ARGV[at] ~= 'takeover'
end
local limit, replies = ARGV[4] + 0
for i = 1, types do
  local counter, record, n, highWater = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i + 4], ARGV[2 * i + 5]
  local first = highWater == '0' and not ARGV[at] -- this may be the first number of a period
  local kept, entered, held, top, copy, reply, missing
  if usual and id then
    kept = redis.pcall('HMGET', record, 'entered', 'ceiling', 'counterCopy', 'replID') -- each is nil after an error
    entered, copy = kept[1], kept[4] == id and kept[3]
    top = copy and tonumber(kept[2]) and math.min(kept[2], limit)
  elseif usual and first then
    kept = redis.pcall('HMGET', record, 'entered', 'ahead', 'used')
    entered, top = kept[1], limit
  elseif usual then
    entered, top = redis.pcall('HGET', record, 'entered'), limit
  end
  if top and entered == ARGV[1] then
    held = redis.pcall('GET', counter)
    -- Usually, it is the sequence that the caller saw last. Any other text must begin with 1 to 9 and be a number to
    -- tonumber; INCRBY then takes it for the same number, or fails.
    local last = held == highWater and held
      or type(held) == 'string' and (string.byte(held) or 0) > 48 and tonumber(held)
    if last and (held == highWater or last >= highWater + 0) and last + n <= top and (not id or held == copy) then
      local left = redis.pcall('PTTL', counter)
      reply = type(left) == 'number' and left >= 0 and redis.pcall('INCRBY', counter, n)
      -- If this is refused, the next take has a new block set aside.
      if id and type(reply) == 'number' then
        local plain = reply % 1e8 == 0 and string.format('%.0f', reply) or reply -- as in writing.lua
        redis.pcall('HSET', record, 'counterCopy', plain)
      end
    end
  elseif top and first then
    -- Is this the first number of a period that follows the one entered, was not opened ahead and was never used?
    missing = entered == false and not kept[3]
    if entered and (kept[2] or '') == '' then
      local label, begins, ours = string.match(ARGV[1], '^(%S+) (%S+) %S+( .*)$')
      local last, ends, theirs = string.match(entered, '^(%S+) %S+ (%-?%d+)( .*)$')
      missing = theirs == ours and ends + 0 <= begins + 0 and label > last
        and label > string.sub(kept[3] or '', -#label - 1, -2)
    end
    missing = missing and redis.pcall('GET', counter) == false
  end
  if missing then
    reply = {'missing', now, time[2] + 0}
  elseif type(reply) ~= 'number' then
    local done, answer = pcall(takeByRules, time, id, i, at)
    reply = (done or type(answer) == 'table') and answer or {err = answer} -- an error is a string in Redis 6.2
    -- A replica refuses all writes, whatever the type. If this error is the whole call's, the client retries on another
    -- connection.
    if not done and string.find(reply.err, 'READONLY', 1, true) then return reply end
  end
  if types == 1 then return reply end
  replies = replies or {}
  replies[i] = reply
end
return replies
