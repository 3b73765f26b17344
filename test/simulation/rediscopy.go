package simulation

import (
	"bufio"
	"bytes"
	"fmt"

	"github.com/alicebob/miniredis/v2/server"
)

// copyScript returns all data: for each key its name, its type, its time to live, and its content.
const copyScript = `
local all = {}
local reads = {
  string = function(key) return {redis.call('GET', key)} end,
  hash = function(key) return redis.call('HGETALL', key) end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  stream = function(key)
    local flat = {}
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
      table.insert(flat, entry[1])
      table.insert(flat, tostring(#entry[2]))
      for _, field in ipairs(entry[2]) do table.insert(flat, field) end
    end
    return flat
  end,
}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  table.insert(all, {key, kind, tostring(redis.call('PTTL', key)), reads[kind](key)})
end
return all`

// putBackScript replaces all data. ARGV holds for each key its name, type and time to live, how many texts its content
// has, and the texts.
const putBackScript = `
redis.call('FLUSHALL')
local at = 1
local function following() at = at + 1; return ARGV[at - 1] end
while at <= #ARGV do
  local key, kind, ttl, n = following(), following(), tonumber(following()), tonumber(following())
  local last = at + n - 1
  while at <= last do
    if kind == 'string' then redis.call('SET', key, following())
    elseif kind == 'hash' then redis.call('HSET', key, following(), following())
    elseif kind == 'set' then redis.call('SADD', key, following())
    elseif kind == 'list' then redis.call('RPUSH', key, following())
    elseif kind == 'zset' then
      local member = following()
      redis.call('ZADD', key, following(), member)
    else
      local add, fields = {'XADD', key, following()}, tonumber(following())
      for _ = 1, fields do table.insert(add, following()) end
      redis.call(unpack(add))
    end
  end
  if ttl >= 0 then redis.call('PEXPIRE', key, ttl) end
end`

// call makes a call at Redis, beside the network.
func (r *redisServer) call(words ...string) (any, error) {
	var answer bytes.Buffer
	to := bufio.NewWriter(&answer)
	r.mini.Server().Dispatch(server.NewPeer(to), words)
	if err := to.Flush(); err != nil {
		return nil, err
	}
	return server.ParseReply(bufio.NewReader(&answer))
}

// copyData copies all data in one step. The result is for putBack.
func (r *redisServer) copyData() ([]string, error) {
	answer, err := r.call("EVAL", copyScript, "0")
	if err != nil {
		return nil, err
	}
	keys, _ := answer.([]any)
	var all []string
	for _, key := range keys {
		parts, _ := key.([]any)
		if len(parts) != 4 {
			return nil, fmt.Errorf("a key is copied as %v", key)
		}
		content, _ := parts[3].([]any)
		all = append(all, text(parts[0]), text(parts[1]), text(parts[2]), fmt.Sprint(len(content)))
		for _, part := range content {
			all = append(all, text(part))
		}
	}
	return all, nil
}

// putBack replaces all data in one step.
func (r *redisServer) putBack(data []string) error {
	_, err := r.call(append([]string{"EVAL", putBackScript, "0"}, data...)...)
	return err
}

func text(part any) string {
	if b, is := part.([]byte); is {
		return string(b)
	}
	return fmt.Sprint(part)
}
