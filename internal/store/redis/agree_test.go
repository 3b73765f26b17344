package redis

import (
	"context"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// TestConcurrentStartsAgreeOnShards has another coordinator write down a layout after this coordinator has found none.
func TestConcurrentStartsAgreeOnShards(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	for prefix, test := range map[string]struct {
		other []any
		want  layout
	}{
		"nobody":      {nil, layout{1}},
		"another":     {[]any{"layout", 1, "shards", 16}, layout{16}},
		"interrupted": {[]any{"layout", 1}, layout{1}}, // the other coordinator is between its two writes
	} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			s, err := New(t.Context(), Config{URL: server.URL(), Logger: slog.New(slog.DiscardHandler)}.WithDefaults())
			must.Succeed(t, err)
			t.Cleanup(func() { _ = s.Close() })
			s.config.Prefix = prefix
			s.intake.AddHook(&otherFirst{s.loops, metaOf(prefix), test.other})
			if got, err := s.agreeOnLayout(t.Context(), false); err != nil || got != test.want {
				t.Errorf("%+v, want %+v, %v", got, test.want, err)
			}
		})
	}
}

// otherFirst lets the other coordinator write before any pipeline.
type otherFirst struct {
	client redis.UniversalClient
	key    string
	fields []any
}

func (o *otherFirst) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *otherFirst) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (o *otherFirst) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		if len(o.fields) > 0 {
			if err := o.client.HSet(ctx, o.key, o.fields...).Err(); err != nil {
				return err
			}
		}
		return next(ctx, commands)
	}
}
