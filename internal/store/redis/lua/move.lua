#!lua flags=allow-oom
-- Purpose: brings events about that are no Submit: an owner's words, a Rollback, a retry, a discard.
-- KEYS: 1 the shard's prefix
-- ARGV: 1 number of rules; then each rule, as settle.go writes them: the state the event leads to from each kept state
--   ("-" refused, "0" none), the same for a message that somebody hurried meanwhile, then its FLAGS; then, after a
--   blank, what a timeline calls it, where it is told there: one that is no change only with a cause; then the number
--   of words, and for each word, which messages may share: the rule's number, token, milliseconds until due,
--   milliseconds to hold the lease, cause; then for each producer: name, number of messages, and for each message: id,
--   the word's number, its digest where it is known
-- Returns: for each message reply + state, where WAITS says that the message stands behind another one of its chain, and
--   has no owner any more; then how many successors have become due
local FLAGS = {o = 'needs_lease', c = 'counts_confirm', p = 'counts_publish', d = 'counts_deletion', y = 'counts_copy',
  z = 'resets_attempts', u = 'writes_time'}
local rules = {}
for i = 1, tonumber(ARGV[1]) do
  local text = ARGV[1 + i]
  local rule = {to = {}, hurried = {}, reaches = {}}
  for s = 1, #KEPT do
    rule.to[s] = tonumber(string.sub(text, s, s))
    rule.hurried[s] = tonumber(string.sub(text, #KEPT + s, #KEPT + s))
    if rule.to[s] then
      rule.reaches[rule.to[s]] = true
    end
  end
  local flags, what = string.match(string.sub(text, 2 * #KEPT + 1), '^(%a*) ?(.*)$')
  for flag in string.gmatch(flags, '%a') do
    rule[FLAGS[flag]] = true
  end
  rule.what = what ~= '' and what
  rules[i] = rule
end

local words = {}
local from = 2 + ARGV[1]
for i = 1, tonumber(ARGV[from]) do
  local at = from + 5 * i - 4
  words[i] = {rule = rules[tonumber(ARGV[at])], token = ARGV[at + 1], after = tonumber(ARGV[at + 2]),
    hold = tonumber(ARGV[at + 3]), cause = ARGV[at + 4]}
end
from = from + 1 + 5 * #words

-- refusal says why a rule does not apply to a message in state s, or nil when it does.
local function refusal(g, id, rule, s, due, token)
  if s > #KEPT then
    if rule.reaches[s] then
      return OK + s -- the same call, made before
    end
    return (rule.needs_lease and LOST or ILLEGAL) + s
  end
  if rule.needs_lease and (owned(g, id) ~= token or not live(due)) then
    return LOST + s
  end
  if rule.to[s] then
    return nil
  end
  if rule.needs_lease and rule.reaches[s] then
    return OK + s -- made before, by an owner that kept its lease
  end
  return ILLEGAL + s
end

-- remember keeps the notes about a message beyond its state.
local function remember(g, id, rule, s, to, token, cause)
  local notes = g.notes .. id
  local set = {}
  if to == COMMITTED and s == FIRST then
    gather(g.judged, id, stamp(now))
  end
  if rule.writes_time then
    set[#set + 1] = 'updated_at'
    set[#set + 1] = now
  end
  if rule.what and (rule.writes_time or cause ~= '') then
    set[#set + 1] = 'events'
    set[#set + 1] = told(g, id, rule.what, rule.needs_lease and instance(token) or token, cause)
  end
  if rule.needs_lease and cause ~= '' then
    set[#set + 1] = 'error'
    set[#set + 1] = cause
    set[#set + 1] = 'error_at'
    set[#set + 1] = now
  end
  if #set > 0 then
    call('HSET', notes, unpack(set))
  end
  if rule.counts_confirm then
    call('HINCRBY', notes, 'confirms', 1)
  end
  if rule.counts_publish then
    call('HINCRBY', notes, 'publishes', 1)
  end
  if rule.counts_deletion then
    call('HINCRBY', notes, 'deletes', 1)
  end
  if rule.counts_copy then
    call('HINCRBY', notes, 'copies', 1)
  end
end

-- place puts a message into its next state with its next due time, and says whether the message waits for its turn then.
local function place(g, id, rule, s, to, due, after, hold)
  if to == COMMITTED and behind(g, id) then
    shift(g, s, to, id, BEHIND)
    g.freed[#g.freed + 1] = id
    g.waiting[#g.waiting + 1] = id
    return true
  end
  if rule.needs_lease then
    if hold > 0 then
      shift(g, s, to, id, now + hold)
      return
    end
    shift(g, s, to, id, now + after)
    g.freed[#g.freed + 1] = id
    return
  end
  if s == to and live(due) and owned(g, id) then
    call('HSET', g.notes .. id, 'hurry', 1) -- its owner works on it already
    return
  end
  shift(g, s, to, id, now + after)
end

-- keep puts a message that ends into the archive. The record says when the message was created, the shared keys the rest.
local function keep(g, id, ended, published, record)
  local created = record and string.match(record, '^%a+ (%d+) ')
  local copies = noted(g) and tonumber(call('HGET', g.notes .. id, 'copies')) or 0
  archive.add(g.producer, id, ended, created or '-', judged(g, id) or '-', copies + (published and 1 or 0), record)
end

-- ended_at is the time in a receipt: the time of the entry in the archive, also where the marker was deleted later. A later
-- time would say that the message has ended again since. A key of another type has no time.
local function ended_at(g, id, s)
  if ARCHIVED and s == ACKNOWLEDGED then
    local read, text = pcall(line, g.record .. id)
    return read and string.match(text, '"archived_ms":"(%d+)"') or stamp(now)
  end
  return stamp(now)
end

-- strip reduces a record to the fields for deleting the marker and for recognizing the message when it is sent again.
local function strip(g, id)
  if ARCHIVED then
    keep(g, id, FINAL[DONE], true, call('GET', g.record .. id))
  end
  local ms, digest, header = string.match(line(g.record .. id), '^%a+ (%d+) (%S+) [^{]*(.*)')
  local whole, rest = cjson.decode(header), {}
  for _, name in ipairs({'ordering_key', 'callback_target', 'markers'}) do
    if whole[name] then
      -- Only texts go to cjson: an empty table could become a list. And cjson has a way of its own of writing a slash.
      rest[#rest + 1] = '"' .. name .. '":' .. string.gsub(cjson.encode(whole[name]), '\\/', '/')
    end
  end
  if ARCHIVED then
    rest[#rest + 1] = '"archived_ms":"' .. stamp(now) .. '"'
  end
  call('SET', g.record .. id, KEPT[ACKNOWLEDGED] .. ' ' .. ms .. ' ' .. digest .. ' {' .. table.concat(rest, ',') .. '}\n')
  call('HDEL', g.verdicts, id)
  call('DEL', g.notes .. id)
end

local function move(g, id, at)
  local word = words[tonumber(ARGV[at + 1])]
  local rule, token, after, cause = word.rule, word.token, word.after, word.cause
  local s, due = find(g, id)
  if s == 0 then
    return rule.needs_lease and LOST or MISSING
  end
  local refused = refusal(g, id, rule, s, due, token)
  if refused then
    return refused
  end
  local to = rule.to[s]
  if to > #KEPT then
    local digest = ARGV[at + 2]
    if digest == '' then
      digest = select(3, head(g, id))
    end
    local receipt = FINAL[to] .. ' ' .. ended_at(g, id, s) .. ' ' .. (digest or '-')
    if ARCHIVED then
      keep(g, id, FINAL[to], to == DONE, archive.swap(g.record .. id, receipt))
    else
      call('SET', g.record .. id, receipt, 'PX', RETENTION)
    end
    drop(g, s, id)
    g.left = true
    return OK + to
  end
  if to == 0 then
    if ARCHIVED then
      keep(g, id, DISCARDED, false, archive.take(g.record .. id))
    else
      call('DEL', g.record .. id)
    end
    drop(g, s, id)
    g.left = true
    return OK
  end
  local reset = rule.resets_attempts
  if rule.hurried[s] and call('HDEL', g.notes .. id, 'hurry') == 1 then
    reset = rule.hurried[s] ~= to
    to, after = rule.hurried[s], 0
  end
  remember(g, id, rule, s, to, token, cause)
  if reset then
    call('HDEL', g.notes .. id, 'confirms', 'publishes', 'deletes')
    renew(g, id)
  end
  local waits = place(g, id, rule, s, to, due, after, word.hold)
  if to == ACKNOWLEDGED and s ~= to then
    g.stripped[#g.stripped + 1] = id
    leaves(g, id)
  end
  return (waits and WAITS or OK) + to
end

local function before(g)
  index_all(g)
  g.stripped = {}
end

-- after strips records once their messages have left their old index: no index of messages to be published may name a
-- stripped record. A record that cannot be stripped stays whole.
local function after(g)
  for _, id in ipairs(g.failed and {} or g.stripped) do
    safely(strip, g, id)
  end
  if g.left then
    tidy(g)
  end
end

local out = groups(from, 3, move, before, after)
if ARCHIVED then
  archive.close()
end
out[#out + 1] = successors
return out
