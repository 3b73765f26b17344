#!lua flags=allow-oom
-- Purpose: removes from the archive of a shard what is too old, or too much, a part at a time; and switches the archive off
--   while Redis needs its memory for messages.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 milliseconds that an entry stays; 2 how many entries stay; 3 how many go in one call; 4 milliseconds for which the
--   archive is off at a time
-- Returns: how many went, which is 0 at the end; how many are left; the id of the oldest; how many messages the archive did
--   not take
-- FULL is the part of maxmemory, in percent, from which on the archive takes nothing more, and gives way.
local FULL = 90
local key, part = KEYS[1] .. ARCHIVE, math.max(1, tonumber(ARGV[3])) -- XTRIM takes 0 for any number
local since = string.format('%.0f', math.max(0, now - ARGV[1]))

-- full says whether Redis needs its memory for messages. A server that does not tell is not full. As in fullness.go, the
-- buffers of replicas and of the append-only file do not count.
local function full()
  local info = redis.pcall('INFO', 'memory')
  info = type(info) == 'string' and info or ''
  local function bytes(field)
    return tonumber(string.match(info, '\n' .. field .. ':(%d+)') or 0)
  end
  local most, used = bytes('maxmemory'), bytes('used_memory') - bytes('mem_not_counted_for_evict')
  return most > 0 and used * 100 > most * FULL
end

-- trim removes whole nodes of the stream first, which is cheap, and then the entries of a last node.
local function trim(by, limit)
  local gone = call('XTRIM', key, by, '~', limit, 'LIMIT', part)
  return gone > 0 and gone or call('XTRIM', key, by, '=', limit)
end

local gone = trim('MINID', since)
gone = gone > 0 and gone or trim('MAXLEN', ARGV[2])
if full() then
  call('SET', KEYS[1] .. ARCHIVEFULL, now, 'PX', ARGV[4])
  gone = gone > 0 and gone or call('XTRIM', key, 'MAXLEN', math.max(0, call('XLEN', key) - part))
else
  call('DEL', KEYS[1] .. ARCHIVEFULL)
end
local first = call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
return {gone, call('XLEN', key), first and first[1] or '', tonumber(call('GET', KEYS[1] .. DROPPED) or 0)}
