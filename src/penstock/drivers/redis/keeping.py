"""What stays in a stream and what goes: scripts that decide by what the server knows just then.

A topic of ours has a row in `$penstock:topics`, with its settings. Every script that would make a
stream writes the row in the same step, so that a stream without a row was made by another program:
nothing is removed from it. Times are the server's, as the entries' ids are.

`$penstock:uncovered` tells, of topics with groups, up to which entry none of them counted when it
was stored: these stay for `retain_s`, whatever subscribes later. It goes with the last group.
"""

from typing import Final

ENSURE: Final = """
local TOPICS, UNCOVERED = '$penstock:topics', '$penstock:uncovered'
local function ensure(stream)
  if redis.call('EXISTS', stream) == 1 then return end
  local policy = '{}'
  local source, name = string.match(stream, '^(.-)%.dead%.(.*)$')
  if source then
    policy = '{"retain_s": null, "dead_of": ' .. cjson.encode(source .. '\\n' .. name) .. '}'
  end
  local row = string.format('{"policy": %s, "created_at": %s}', policy, redis.call('TIME')[1])
  redis.call('HSETNX', TOPICS, stream, row)
end
"""
"""`ensure(stream)`: a stream that is not there yet will be a topic of ours."""

_GROUPS: Final = """
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local function less(one, other)
  local m1, s1 = parts(one)
  local m2, s2 = parts(other)
  return m1 < m2 or (m1 == m2 and s1 < s2)
end
local function lower(one, other)
  if one and (not other or less(one, other)) then return one end
  return other
end
local function durable(stream)
  local found = {}
  if redis.call('EXISTS', stream) == 0 then return found end
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local row = {}
    for n = 1, #info, 2 do row[info[n]] = info[n + 1] end
    if string.sub(row.name, 1, 20) ~= '$penstock:ephemeral:' then found[#found + 1] = row end
  end
  return found
end
local function covered(stream, group, others)
  local mark = redis.call('HGET', UNCOVERED, stream)
  for _, row in ipairs(durable(stream)) do
    if row.name == group and (not others[1] or mark) then
      local from = row['last-delivered-id']
      if others[1] then from = lower(from, mark) end
      redis.call('HSET', UNCOVERED, stream, from)
    end
  end
end
local function uncovered(stream)
  if not durable(stream)[1] then redis.call('HDEL', UNCOVERED, stream) end
end
"""
"""The groups that hold messages. `covered` notes a new one, `uncovered` that one is gone."""

_HELD: Final = """
local function held(stream, position)
  local first, last = '', nil
  if redis.call('EXISTS', stream) == 1 then
    local row = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    if row then
      first, last = row[1], redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1][1]
    end
  end
  return last and not less(position, first) and not less(last, position), first
end
"""
"""`held(stream, position)`: whether it lies in what the stream holds, and the first that does."""

TRIM: Final = (
    ENSURE
    + _GROUPS
    + """
local a = cmsgpack.unpack(ARGV[1])
local said = redis.call('HGET', TOPICS, a.stream)
if not said or redis.call('EXISTS', a.stream) == 0 then return 0 end
local policy = cjson.decode(said).policy or {}
local clock = redis.call('TIME')
local function before(seconds)
  if not seconds or seconds == cjson.null then return nil end
  local ms = clock[1] * 1000 + math.floor(clock[2] / 1000) - seconds * 1000
  return string.format('%d-0', math.max(0, math.ceil(ms)))
end
local retain = policy.retain_s
if retain == nil then retain = a.retain end
local kept = before(retain)
local floor, seen = nil, nil
for _, row in ipairs(durable(a.stream)) do
  local id = row['last-delivered-id']
  seen = lower(id, seen)
  if row.pending > 0 then
    id = redis.call('XPENDING', a.stream, row.name)[2]
  else
    local ms, seq = parts(id)
    id = seq < 2^53 and string.format('%d-%d', ms, seq + 1) or string.format('%d-0', ms + 1)
  end
  floor = lower(id, floor)
end
local mark = nil
if floor then
  mark = redis.call('HGET', UNCOVERED, a.stream)
  if not mark then
    mark = seen
    redis.call('HSET', UNCOVERED, a.stream, mark)
  end
  if less(mark, kept or '0-0') or not redis.call('XRANGE', a.stream, '-', mark, 'COUNT', 1)[1] then
    mark = nil
  end
else
  redis.call('HDEL', UNCOVERED, a.stream)
  floor = kept
end
if floor and policy.replay_s and policy.replay_s > 0 then
  floor = lower(before(policy.replay_s), floor)
end
local base = floor
if mark then base = lower(kept or '0-0', floor) end
local oldest = before(policy.max_age_s)
if oldest and (not base or less(base, oldest)) then base = oldest end
if base then redis.call('XTRIM', a.stream, 'MINID', '=', base) end
if not mark or not less(mark, floor) then return 0 end
local rows = redis.call('XRANGE', a.stream, '(' .. mark, '(' .. floor, 'COUNT', a.page)
local ids = {}
for n, row in ipairs(rows) do ids[n] = row[1] end
if ids[1] then redis.call('XDEL', a.stream, unpack(ids)) end
return #ids
"""
)
"""Removes what every durable subscription has finished, or what is too old, by the settings the
topic has now. Returns how many it removed behind others that stay: a full page = ask again."""

SUBSCRIBE: Final = (
    ENSURE
    + _GROUPS
    + _HELD
    + """
local a = cmsgpack.unpack(ARGV[1])
if a.position ~= '' then
  local is_held, first = held(a.stream, a.position)
  if not is_held then return {first} end
end
ensure(a.stream)
local others = durable(a.stream)
for _, row in ipairs(others) do
  if row.name == a.group then return 0 end
end
redis.call('XGROUP', 'CREATE', a.stream, a.group, a.at, 'MKSTREAM')
if a.policy ~= '' then
  redis.call('HSET', a.key, a.group, a.policy)
  covered(a.stream, a.group, others)
end
return 1
"""
)
"""Makes a group; one that is there stays as it is. [first id]: the position is not held."""

ALTER: Final = """
local a = cmsgpack.unpack(ARGV[1])
redis.call('XPENDING', a.stream, a.group)
redis.call('HSET', a.key, a.group, a.policy)
return 1
"""
"""Changes the policy of a subscription that is there."""

UNSUBSCRIBE: Final = (
    ENSURE
    + _GROUPS
    + """
local a = cmsgpack.unpack(ARGV[1])
if redis.call('EXISTS', a.stream) == 1 then redis.call('XGROUP', 'DESTROY', a.stream, a.group) end
redis.call('HDEL', a.key, a.group)
uncovered(a.stream)
return 1
"""
)
"""Removes a subscription with its policy."""

SEEK: Final = (
    _GROUPS
    + _HELD
    + """
local a = cmsgpack.unpack(ARGV[1])
if a.position ~= '' then
  local is_held, first = held(a.stream, a.position)
  if not is_held then return {first} end
end
while true do
  local rows = redis.call('XPENDING', a.stream, a.group, '-', '+', 500)
  if not rows[1] then break end
  for _, row in ipairs(rows) do redis.call('XACK', a.stream, a.group, row[1]) end
end
redis.call('XGROUP', 'SETID', a.stream, a.group, a.at)
return 1
"""
)
"""Moves a subscription; what its consumers hold is void. [first id]: the position is not held."""

WAITING: Final = """
local a = cmsgpack.unpack(ARGV[1])
local function counted(from, to)
  local found = 0
  while found < a.most do
    local rows = redis.call('XRANGE', a.stream, from, to, 'COUNT', 100)
    found = found + #rows
    if #rows < 100 then return found end
    from = '(' .. rows[100][1]
  end
end
local after = counted('(' .. a.after, '+')
if after then return {after, 1} end
local before = counted('-', a.after)
if before then return {redis.call('XLEN', a.stream) - before, 1} end
return {a.most, 0}
"""
"""Messages behind an id: [how many, 1], or [at least so many, 0] when counting would take long."""

NOTE: Final = (
    ENSURE
    + _GROUPS
    + """
local a = cmsgpack.unpack(ARGV[1])
if (redis.call('HGET', a.key, a.name) or '') ~= a.before then return 0 end
if a.after == '' then
  redis.call('HDEL', a.key, a.name)
  redis.call('XGROUP', 'DESTROY', a.stream, a.group)
  uncovered(a.stream)
  return 1
end
if a.before == '' then
  ensure(a.stream)
  local others = durable(a.stream)
  redis.call('XGROUP', 'CREATE', a.stream, a.group, a.below, 'MKSTREAM')
  covered(a.stream, a.group, others)
else
  redis.call('XGROUP', 'SETID', a.stream, a.group, a.below)
end
redis.call('HSET', a.key, a.name, a.after)
return 1
"""
)
"""Replaces the note of a reader and moves its place: 1, or 0 when the note is another."""

SWAP: Final = """
local a = cmsgpack.unpack(ARGV[1])
if a.is_new and redis.call('EXISTS', a.stream) == 1 then return 0 end
if (redis.call('HGET', a.key, a.stream) or '') ~= a.before then return 0 end
redis.call('HSET', a.key, a.stream, a.after)
return 1
"""
"""Writes the row of a topic over the one that was read: 1, or 0 when it is another by now."""

DROP: Final = """
local a = cmsgpack.unpack(ARGV[1])
local last = '0-0'
if redis.call('EXISTS', a.stream) == 1 then
  local info = redis.call('XINFO', 'STREAM', a.stream)
  for n = 1, #info, 2 do
    if info[n] == 'last-generated-id' then last = info[n + 1] end
  end
end
redis.call('DEL', a.stream, unpack(a.keys))
for _, rows in ipairs(a.rows) do redis.call('HDEL', rows, a.stream) end
return last
"""
"""Deletes a topic with all that is known of it, but for the ids that are remembered."""

FORGET: Final = (
    _GROUPS
    + """
local a = cmsgpack.unpack(ARGV[1])
for _, key in ipairs(a.keys) do
  local id = string.match(redis.call('GET', key) or '', '(%d+%-%d+)$')
  if id and not less(a.last, id) then redis.call('DEL', key) end
end
return 1
"""
)
"""Forgets ids of entries that were deleted up to `last`: those of a topic made anew stay."""
