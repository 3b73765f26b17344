#!lua flags=allow-oom
-- Purpose: writes down that the messages which stand in a shard by now may have been published already.
-- KEYS: 1 where the shard keeps that
-- ARGV: 1 milliseconds until it is forgotten
-- Returns: OK
return call('SET', KEYS[1], string.format('%.0f', now), 'PX', ARGV[1])
