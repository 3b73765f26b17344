package natsconsumer

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/address"
)

// NewDeadLetters describes a dead-letter stream. The first method call connects. URL and TLS are as in Config. The
// methods read the letters one by one without a consumer on the stream. So looking changes nothing, also for others who
// look at the same time. The copies of a letter have one Nats-Msg-Id, so an interrupted and repeated replay is stored
// once within the stream's deduplication window.
//
// The user needs permission to publish to $JS.API.STREAM.INFO.> and $JS.API.STREAM.MSG.GET.STREAM, or to
// $JS.API.DIRECT.GET.STREAM where the stream has allow_direct. Replay and Discard also need
// $JS.API.STREAM.MSG.DELETE.STREAM, and Replay needs the subjects of the messages.
func NewDeadLetters(url string, tls *tls.Config, stream string) (*consumer.DeadLetters, error) {
	where, err := address.ParseNATS(url)
	if err != nil {
		return nil, fmt.Errorf("natsconsumer.NewDeadLetters: URL %w", err)
	}
	if !isName(stream) {
		return nil, fmt.Errorf("natsconsumer.NewDeadLetters: %q cannot be the name of a stream; "+
			"name the DeadLetterStream of the consumers, such as DEAD", stream)
	}
	return consumer.NewDeadLetters(&deadLetterStream{where, tls, stream}), nil
}

// deadLetterStream is the stream of DeadLetters.
type deadLetterStream struct {
	address address.NATS
	tls     *tls.Config
	stream  string
}

// Depth is the number of messages of the stream.
func (d *deadLetterStream) Depth(ctx context.Context) (int, error) {
	w, err := d.open(ctx)
	if err != nil {
		return 0, err
	}
	defer w.conn.Close()
	return int(w.stream.CachedInfo().State.Msgs), nil //nolint:gosec // no stream has so many
}

// Count reads no letter.
func (d *deadLetterStream) Count(ctx context.Context) (int, error) { return d.Depth(ctx) }

// foundLetter is a letter that a walk shows.
type foundLetter struct {
	letter *letter
	walk   *walk
}

func (f *foundLetter) Content() *consumer.Letter { return &f.letter.Letter }

func (f *foundLetter) Publish(ctx context.Context) error { return f.walk.post(ctx, f.letter) }

func (f *foundLetter) Remove(ctx context.Context, _ string) error {
	return f.walk.remove(ctx, f.letter)
}

// isName reports whether a stream or a consumer can have a name.
func isName(name string) bool { return name != "" && !strings.ContainsAny(name, ".*> \t\r\n/\\") }
