#!lua flags=allow-oom
-- Purpose: removes from the archive of a shard what is too old, or too much, a part at a time.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 milliseconds that an entry stays; 2 how many entries stay; 3 how many go in one call
-- Returns: how many went, which is 0 at the end; how many are left; the id of the oldest; how many messages the archive did
--   not take
local key = KEYS[1] .. ARCHIVE
local since = string.format('%.0f', math.max(0, now - ARGV[1]))

-- trim removes whole nodes of the stream first, which is cheap, and then the entries of a last node.
local function trim(by, limit)
  local gone = call('XTRIM', key, by, '~', limit, 'LIMIT', ARGV[3])
  return gone > 0 and gone or call('XTRIM', key, by, '=', limit)
end

local gone = trim('MINID', since)
gone = gone > 0 and gone or trim('MAXLEN', ARGV[2])
local first = call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
return {gone, call('XLEN', key), first and first[1] or '', tonumber(call('GET', KEYS[1] .. DROPPED) or 0)}
