#!lua flags=allow-oom
-- Purpose: looks at a shard and counts on. A full Redis may go back in time as well, so this needs next to no room.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 and 2 generation and count that were last seen of the shard
-- Returns: {generation, count}
look(ARGV[1], ARGV[2])
local key = KEYS[1] .. PULSE
call('HSETNX', key, 'generation', now)
local count = call('HINCRBY', key, 'count', 1)
call('PEXPIRE', key, PULSERETENTION)
return {call('HGET', key, 'generation'), count}
