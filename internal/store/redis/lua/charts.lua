#!lua flags=allow-oom
-- Purpose: adds counts to the current bucket of a chart, which all coordinators share. In the first shard only.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 milliseconds of a bucket; 2 milliseconds for which a bucket is kept; 3 how many names of a kind a bucket holds;
--   4 how many sums follow; then the field and the number to add of each; then how many values follow; then the field and
--   the value of each, which replaces the earlier value; then to the end the kind, the name and three numbers to add of each
--   named series. A name beyond the limit is added to the name "", which a bucket holds in addition.
-- Returns: the time
local step, keep, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local key = KEYS[1] .. CHART .. ARGV[1] .. ':' .. string.format('%d', math.floor(now / step))

local at = 4
local function take()
  at = at + 1
  return ARGV[at - 1]
end

for _ = 1, tonumber(take()) do
  call('HINCRBY', key, take(), take())
end
for _ = 1, tonumber(take()) do
  call('HSET', key, take(), take())
end
while at <= #ARGV do
  local kind, name = take(), take()
  local field = kind .. '/' .. name
  local known = call('HGET', key, field)
  if not known and name ~= '' then
    local names = kind .. '#'
    if tonumber(call('HGET', key, names) or 0) < most then
      call('HINCRBY', key, names, 1)
    else
      field = kind .. '/'
      known = call('HGET', key, field)
    end
  end
  local a, b, c = string.match(known or '', '^(%d+) (%d+) (%d+)$')
  call('HSET', key, field, string.format('%d %d %d', (a or 0) + take(), (b or 0) + take(), (c or 0) + take()))
end
call('PEXPIRE', key, keep + step)
return {now}
