#!lua flags=allow-oom
-- Purpose: counts on in a shard. A full Redis may go back in time as well, so this needs no room beyond what it had.
-- KEYS: 1 the shard's pulse
-- ARGV: 1 a generation, for a pulse that has none; 2 milliseconds until an abandoned pulse is forgotten
-- Returns: {generation, count}
call('HSETNX', KEYS[1], 'generation', ARGV[1])
local count = call('HINCRBY', KEYS[1], 'count', 1)
call('PEXPIRE', KEYS[1], ARGV[2])
return {call('HGET', KEYS[1], 'generation'), count}
