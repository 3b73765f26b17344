-- Purpose: runs a script for several shards of one master of a Cluster. scripts.go puts the script in the place of the
--   word SCRIPT, as the body of a function of KEYS and ARGV.
-- KEYS: 1 the first shard's prefix ARGV: for each shard: its prefix, the number of the script's arguments, and these
-- Returns: for each shard the script's reply; an error; or nothing when the shard's slot is not served by this master
--   alone, and the script did not run
local function script(KEYS, ARGV)
  SCRIPT
end

-- elsewhere says whether this master does not serve a shard's slot, or not all keys of the slot. No key has the name of
-- the prefix, and Redis answers about a missing key only where no other master could have it.
local function elsewhere(prefix)
  return type(redis.pcall('EXISTS', prefix)) == 'table'
end

local out, at = {}, 1
local single = 2 + ARGV[2] == #ARGV -- its slot was looked at before the script began
while ARGV[at] do
  local prefix, last = ARGV[at], at + 1 + ARGV[at + 1]
  if not single and elsewhere(prefix) then
    out[#out + 1] = false
  else
    local ok, reply = pcall(script, {prefix}, {unpack(ARGV, at + 2, last)})
    if not ok then
      reply = type(reply) == 'table' and reply or {err = tostring(reply)}
    end
    out[#out + 1] = reply
  end
  at = last + 1
end
return out
