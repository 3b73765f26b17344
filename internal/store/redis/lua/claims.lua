-- Purpose: claims messages.

-- weight is the memory of a claimed record, whose body may be packed.
local function weight(record)
  local size = string.match(record, '^%a+ %d+ %S+ (%d+) ') -- only a packed body's line has a size
  return #record + (size and math.min(tonumber(size), MAXBODY) or 0)
end

-- known says whether the message is the one created at that time, without any later notes.
local function known(g, id, s, created)
  return created ~= '' and score(g, g[s] .. CREATED, id) == created and tonumber(created) > suspect and not noted(g)
end

-- hold gives a token a message in state s.
local function hold(g, id, s, token, lease)
  gather(g.held, id, token)
  gather(g.due[s], stamp(now + lease), id)
end

-- note_lost notes that an owner has died or lost the lease. A message to be published counts a copy that may be out.
local function note_lost(g, id, s, owner, token)
  if s == COMMITTED then
    call('HINCRBY', g.notes .. id, 'copies', 1)
  end
  local lost = 'the lease of ' .. instance(owner) .. ' ended'
  call('HSET', g.notes .. id, 'events', told(g, id, TAKENOVER, instance(token), lost))
  g.noted = true
end

-- take claims a message in state s for a token. An owner in the leases has died or lost the lease.
local function take(g, id, s, due, token, lease, owner)
  local record = call('GET', g.record .. id)
  if not record or ended(string.match(record, '^%S+')) then
    drop(g, s, id) -- nothing to work on: what a half-finished move left behind
    return nil
  end
  local notes = g.notes .. id
  if owner then
    note_lost(g, id, s, owner, token)
  end
  if suspect > 0 and tonumber(string.match(record, '^%S+ (%d+)') or 0) <= suspect then
    call('HSETNX', notes, 'copies', 1)
    g.noted = true
  end
  local known = noted(g) and call('HMGET', notes, 'confirms', 'publishes', 'copies', 'deletes', 'hurry', 'awaited') or {}
  if known[5] then
    call('HDEL', notes, 'hurry')
  end
  hold(g, id, s, token, lease)
  return {g.producer, id, record, known[1] or '', known[2] or '', known[3] or '', s ~= FIRST and judged(g, id) or '',
    known[4] or '', due, known[6] or ''}
end
