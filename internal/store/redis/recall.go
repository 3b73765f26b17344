package redis

import (
	"context"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Recall implements halfmsg.Intake. Where replicas are asked for, they must have the messages, as after Create.
func (s *Store) Recall(ctx context.Context, messages []halfmsg.Message) []halfmsg.Result {
	results := make([]halfmsg.Result, len(messages))
	p := plan{
		store: s, head: always("0"), room: 1, each: func(args []any, i int) []any { return append(args, messages[i].ID) },
	}
	calls := p.calls(s.keyedPlaces(len(messages), func(i int) halfmsg.Name { return messages[i].Name },
		func(i int) string { return messages[i].OrderingKey }))
	s.runReplicated(ctx, s.scripts.get, calls)
	for _, c := range calls {
		for n, i := range c.items {
			results[i] = s.recalled(c, n, &messages[i])
		}
	}
	return results
}

// recalled reads the reply of get.lua about a message.
func (s *Store) recalled(c *call, n int, m *halfmsg.Message) halfmsg.Result {
	fields, is := c.answer(n).([]any)
	if c.err != nil || !is || len(fields) < 4 {
		result := s.result(c, n, m.Name)
		if result.Err == nil {
			result.Err = halfmsg.ErrNotFound
		}
		return result
	}
	code, _ := fields[0].(int64)
	text, _ := fields[3].(string)
	result := halfmsg.Result{State: stateOf[code]}
	t, err := decodeTrace([]byte(text))
	switch {
	case err != nil:
		result.Err = corrupt(s.keys.record(m.Name), err.Error())
	case t.digest != m.Digest():
		result.Err = halfmsg.ErrExists
	}
	return result
}
