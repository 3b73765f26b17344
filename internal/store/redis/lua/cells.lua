-- Purpose: moves messages from their cells into the indexes. A new message has no entry in an index: its state is a
--   cell, and its id is in the page of its time. A message that is neither finished nor gone when its page falls due is
--   indexed, and so is a message that any other script than those for paged messages works on.

-- index_cells indexes those of the messages that are paged, and says how many. The cell of a lost record gives an index
-- entry like any other, whose next owner finds the record missing.
local function index_cells(g, ids)
  local keys, indexed = {[FIRST] = g[FIRST] .. CELLS, [COMMITTED] = g[COMMITTED] .. CELLS}, 0
  if call('EXISTS', keys[FIRST], keys[COMMITTED]) == 0 then
    return indexed
  end
  local gone = {[FIRST] = {}, [COMMITTED] = {}}
  for s, key in pairs(keys) do
    for i, text in ipairs(call('HMGET', key, unpack(ids))) do
      if text and not (tonumber(created_of(text)) and due_of(text)) then
        text = cell(digits(now), now, digits(now), UNOWNED) -- the key still says the state
      end
      if text then
        local id, token = ids[i], token_of(text)
        gone[s][#gone[s] + 1] = id
        indexed = indexed + 1
        local kind = redis.pcall('GETRANGE', g.record .. id, 0, 4)
        if kind == 'half ' or kind == 'pack ' then
          call('SETRANGE', g.record .. id, 5, created_of(text))
        end
        enter(g, s, id, created_of(text), due_of(text))
        if token then
          gather(g.held, id, token)
        end
        if s == COMMITTED then
          gather(g.judged, id, since_of(text))
        end
      end
    end
    -- A paged message has nothing beside its cell. What there is, a lost record of the same name has left.
    clear(g, gone[s], redis.pcall)
  end
  flush(g)
  for s, key in pairs(keys) do
    write('HDEL', key, gone[s])
  end
  return indexed
end

-- index_all indexes all messages that a script is about, before the script works on them. Unusable keys are found again
-- then, and spoil only their producer's messages.
local function index_all(g)
  pcall(index_cells, g, g.ids)
end
