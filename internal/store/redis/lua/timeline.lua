-- Purpose: writes the timelines of messages; timeline.go says how they look.

-- instance is the instance in a token.
local function instance(token)
  return string.match(token, '^(.*)/') or token
end

-- brief brings a cause onto one line and cuts it, but not within a character of UTF-8. Messages of a batch share causes.
local briefs = {}
local function brief(cause)
  if not briefs[cause] then
    local text = string.gsub(cause, '[%s%c]+', ' ')
    local cut = math.min(#text, MAXCAUSE)
    while cut > 0 and cut < #text and string.find(text, '^[\128-\191]', cut + 1) do
      cut = cut - 1
    end
    briefs[cause] = string.sub(text, 1, cut)
  end
  return briefs[cause]
end

local function happening(first, last, times, rest)
  return string.format('%.0f %.0f %.0f %s', tonumber(first), tonumber(last), times, rest)
end

-- shrink drops one line of a timeline that is too long: the oldest line with a newer one of its kind is merged into
-- that line; where all kinds differ, the oldest line goes.
local function shrink(lines)
  local seen, old, into = {}, #lines, nil
  for i, text in ipairs(lines) do
    local what = string.match(text, '^%d+ %d+ %d+ (%S+)') or ''
    if what ~= '' and seen[what] then
      old, into = i, seen[what]
    end
    seen[what] = i
  end
  if into then
    local first, times = string.match(lines[old], '^(%d+) %d+ (%d+)')
    local last, more, rest = string.match(lines[into], '^%d+ (%d+) (%d+) (.*)')
    lines[into] = happening(first, last, times + more, rest)
  end
  table.remove(lines, old)
end

-- told gives a message's timeline with one more happening: the newest first, a line each, FIRST LAST TIMES WHAT BY
-- CAUSE. A happening like the newest is merged with it. Foreign lines do no harm.
local function told(g, id, what, by, cause)
  by, cause = string.gsub(by, '[%s%c]+', ''), brief(cause)
  local rest = what .. ' ' .. (by == '' and UNNAMED or by) .. ' ' .. cause
  local text = call('HGET', g.notes .. id, 'events') or ''
  local first, times, before, why = string.match(text, '^(%d+) %d+ (%d+) (%S+) %S+ ()')
  local stop = string.find(text, '\n', 1, true) or #text + 1
  if before == what and string.sub(text, why, stop - 1) == cause then
    return happening(first, now, times + 1, rest) .. string.sub(text, stop)
  end
  local lines = {happening(now, now, 1, rest)}
  for line in string.gmatch(text, '[^\n]+') do
    lines[#lines + 1] = line
  end
  while #lines > MAXHAPPENINGS do
    shrink(lines)
  end
  return table.concat(lines, '\n')
end
