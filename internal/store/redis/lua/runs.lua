#!lua flags=allow-oom
-- Purpose: notes that a coordinator runs, and finds others that ended without a clean stop. In the first shard only.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 who runs; 2 milliseconds without a count in the pulse after which a coordinator counts as ended;
--   3 milliseconds for which an end is remembered; 4 how many ends are remembered at most;
--   5 1 to find ends, 0 only to note the run: the caller may not be able to tell an end from an outage of Redis
-- Returns: for each end, the latest first: who it was, how many milliseconds ago it last counted, and 1 where no
--   coordinator has reported this end before
local key, reported, who = KEYS[1] .. RUNS, KEYS[1] .. REPORTED, ARGV[1]
local silence, kept, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

call('HSETNX', key, who, now)
call('PEXPIRE', key, PULSERETENTION)
if ARGV[5] ~= '1' then
  return {}
end
local ends, all = {}, call('HGETALL', key)
for i = 1, #all, 2 do
  local name = all[i]
  local last = math.max(tonumber(all[i + 1]) or 0, tonumber(call('HGET', KEYS[1] .. PULSE, name) or 0))
  if name ~= who and now - last > silence then
    ends[#ends + 1] = {name = name, ago = now - last}
  else
    call('HDEL', reported, name)
  end
end
table.sort(ends, function(a, b) return a.ago < b.ago end)
local out = {}
for i, gone in ipairs(ends) do
  if i > most or gone.ago > kept then
    call('HDEL', key, gone.name)
    call('HDEL', reported, gone.name)
  else
    out[#out + 1] = gone.name
    out[#out + 1] = gone.ago
    out[#out + 1] = call('HSETNX', reported, gone.name, now)
  end
end
if #out > 0 then
  call('PEXPIRE', reported, PULSERETENTION)
end
return out
