#!lua flags=allow-oom
-- Purpose: notes that a coordinator runs, and finds others that ended without a clean stop. In the first shard only.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 who runs; 2 milliseconds without a count in the pulse after which a coordinator counts as ended;
--   3 milliseconds for which an end is remembered; 4 how many ends are remembered at most;
--   5 1 to find ends, 0 only to note the run: the caller may not be able to tell an end from an outage of Redis
-- Returns: for each end, the latest first: who it was, how many milliseconds ago it last counted, and 1 where no
--   coordinator has reported this end before
local key, reported, who = KEYS[1] .. RUNS, KEYS[1] .. REPORTED, ARGV[1]
local silence, kept, most = tonumber(ARGV[2]), tonumber(ARGV[3]), math.min(MAXCALL, tonumber(ARGV[4]))

call('HSETNX', key, who, now)
call('PEXPIRE', key, PULSERETENTION)
if ARGV[5] ~= '1' then
  return {}
end

local counted, pulses = {}, call('HGETALL', KEYS[1] .. PULSE)
for i = 1, #pulses, 2 do
  counted[pulses[i]] = string.find(pulses[i], '/', 1, true) and tonumber(pulses[i + 1]) or nil
end

-- common is the coordinators' common time, in which they count: the clock may have jumped since the last counts.
local common = counted[who] or now

-- forget removes fields of a hash, at most MAXCALL of them at a time.
local function forget(hash, names)
  if #names > 0 then
    call('HDEL', hash, unpack(names, 1, math.min(#names, MAXCALL)))
  end
end

local ends, back, all = {}, {}, call('HGETALL', key)
for i = 1, #all, 2 do
  local name = all[i]
  local last = math.max(tonumber(all[i + 1]) or 0, counted[name] or 0)
  if name ~= who and common - last > silence then
    ends[#ends + 1] = {name = name, ago = common - last}
  else
    back[#back + 1] = name
  end
end
forget(reported, back)
table.sort(ends, function(a, b) return a.ago < b.ago end)
local out, gone = {}, {}
for i, one in ipairs(ends) do
  if i <= most and one.ago <= kept then
    out[#out + 1] = one.name
    out[#out + 1] = one.ago
    out[#out + 1] = call('HSETNX', reported, one.name, now)
  else
    gone[#gone + 1] = one.name
  end
end
if #out > 0 then
  call('PEXPIRE', reported, PULSERETENTION)
end
forget(key, gone)
forget(reported, gone)
return out
