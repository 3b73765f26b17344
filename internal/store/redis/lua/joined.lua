-- Purpose: runs scripts for several parts of one call, each about messages of one shard. scripts.go puts the scripts in
--   the place of the word SCRIPTS, each as the body of a function of KEYS and ARGV.
-- KEYS: 1 the first part's shard
-- ARGV: for each part: its shard, the number of its script, the number of its arguments, and these
-- Returns: for each part the script's reply; an error; or nothing when the slot of the shard is not served by this master
--   alone: then the script did not run
local scripts = {SCRIPTS}

-- elsewhere says whether this master does not serve a shard's slot, or not all keys of the slot. No key has the name of
-- a shard, and Redis answers about a missing key only where no other master could have it. Redis has looked at the slot
-- of the first shard before this call.
local function elsewhere(shard)
  return shard ~= KEYS[1] and type(redis.pcall('EXISTS', shard)) == 'table'
end

local function run(shard, script, first, last)
  if elsewhere(shard) then
    return false
  end
  local ok, reply = pcall(script, {shard}, {unpack(ARGV, first, last)})
  if ok then
    return reply
  end
  return type(reply) == 'table' and reply or {err = tostring(reply)}
end

local out, at = {}, 1
while ARGV[at] do
  local last = at + 2 + ARGV[at + 2]
  out[#out + 1] = run(ARGV[at], scripts[tonumber(ARGV[at + 1])], at + 3, last)
  at = last + 1
end
return out
