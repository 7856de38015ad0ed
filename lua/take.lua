-- take: the counter exists, so increment it. One round trip, no lock, and no key can expire in between.
--
-- KEYS and ARGV as in guard.lua; for n = 0 it tells how the period stands. Callers who share an increment want those
-- numbers that are left, and with a ledger there is more to say:
-- ARGV  8  part   '1' if fewer than n will do, else '' or absent
--       9  claim  absent without a ledger; what the caller wants to have a block set aside for:
--                 ''        nothing
--                 'ceiling' a counter that is there
--                 'open'    also one that is missing: the caller has the lock
--                 'floor'   the same, and the caller has a floor to ask: also one that is lost, and that no ledger knows
--                 'raise'   an operator's Raise: any, whatever the state
--      10  token  of the claim, unique
--      11  lease  of the claim, milliseconds
--      12  past   when it ends at the latest, by the server's time in milliseconds: when the lock does; '' without
--
-- Reply: an integer, the last of the n numbers issued; or
--   "part"       the last numbers of the period were issued, fewer than n; detail: "COUNT LAST"
--   "block"      the same of the numbers that are set aside
-- or, with nothing issued, a status as in guard.lua or
--   "future"     the server's clock went back; detail: the period entered
--   "lost"       the counter was there once; detail: what it holds now
--   "missing"    the period has to be opened, or a counter found without a record to be adopted, or a period that was
--                opened ahead to be entered by a caller who must look twice
--   "exhausted"  fewer than n numbers are left; detail: the last sequence issued
--   "ceiling"    a block has to be set aside first; with a ledger the detail of these two is "lost" for a counter that was
--                there once
--   "reserve"    the same, and now the caller has the claim; detail: "REIGN ABOVE", the block has to lie above that
--   "claimed"    another has it
--   "late"       the caller's lock has expired
local want = ARGV[9]
if stands == 'future' and want ~= 'raise' then
  return answer('future', entered)
end

local n = tonumber(ARGV[1])
local part = ARGV[8] == '1'
local limit = tonumber(ARGV[5])
local top = limit -- of what may be issued now

-- ask has the caller set aside a block, if it wants to and nobody else is at it. A claim that seems to last longer than
-- its lease was made before the server's clock went back.
local function ask()
  if want == '' then
    return answer('ceiling', lost and 'lost' or '')
  end
  local ms = milliseconds()
  local token, past = string.match(redis.call('HGET', KEYS[2], 'claim') or '', '^(%S+) (%d+)$')
  if token and token ~= ARGV[10] and ms < tonumber(past) and tonumber(past) <= ms + tonumber(ARGV[11]) then
    return answer('claimed', past)
  end
  local ends = math.min(ms + tonumber(ARGV[11]), tonumber(ARGV[12]) or math.huge)
  if ends <= ms then
    return answer('late', '')
  end
  lifetime(KEYS[2], outlives())
  redis.call('HSET', KEYS[2], 'claim', ARGV[10] .. ' ' .. string.format('%.0f', ends))
  lifetime(KEYS[2], outlives())
  return answer('reserve', reign .. ' ' .. string.format('%.0f', math.max(ceiling or 0, last or 0, mark)))
end

local wary = ARGV[7] == '0'
if untold and want ~= 'floor' and want ~= 'raise' then
  return answer('lost', held or '')
end
if not reign then
  if stands == 'open' or stands == 'ahead' and wary then
    return answer('missing', '')
  end
elseif want == 'raise' then
  return ask()
elseif not intact then
  if stands == 'same' and last and math.max(last, mark) + n > limit then
    return answer('exhausted', string.format('%.0f', math.max(last, mark)))
  end
  if (stands == 'open' or stands == 'ahead' and wary or not last) and want ~= 'open' and want ~= 'floor' then
    return answer('missing', lost and 'lost' or '')
  end
  return ask()
else
  top = math.min(limit, ceiling)
end

local count = math.min(n, math.max(top - last, 0))
if count < n then
  if last >= limit or not part and last + n > limit then
    return answer('exhausted', held)
  end
  if count < 1 or not part then
    return ask()
  end
end
if KEYS[3] and n > 0 then
  permit(KEYS[3], false)
end
if stands == 'ahead' then
  enter()
end
if redis.call('PTTL', KEYS[1]) < 0 then -- something stripped the expiry: a SET or a PERSIST by hand
  redis.call('EXPIREAT', KEYS[1], wary and ARGV[4] or ARGV[7])
end
local issued = last -- which may be more than INCRBY takes, where nothing is to be issued
if last < 1e15 then
  issued = redis.call('INCRBY', KEYS[1], string.format('%.0f', count))
end
if intact then
  redis.call('HSET', KEYS[2], 'copy', string.format('%.0f', issued))
end
if KEYS[3] and n > 0 then
  redis.call('SET', KEYS[3], ARGV[2] .. ' ' .. printed .. ' ' .. string.format('%.0f', issued), 'EX', 48 * 60 * 60)
end
if count < n then
  return answer(issued == limit and 'part' or 'block', string.format('%.0f %.0f', count, issued))
end
return issued
