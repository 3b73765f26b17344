package commandline

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// keyPause is how long a read waits for a key before it looks whether the keys have an end.
const keyPause = 100 * time.Millisecond

// Keys hands over what is typed on the terminal of standard input, such as "q" or the sequence of an arrow, until the
// context ends. Without a terminal it hands over nothing. Ctrl-C is an interrupt, and no key.
func (s *Session) Keys(ctx context.Context, pressed func(key string)) {
	terminal, is := s.In.(*os.File)
	if !is || !IsTerminal(terminal) {
		return
	}
	end, err := singleKeys(terminal)
	if err != nil {
		return
	}
	defer end()
	typed := make([]byte, 16)
	for ctx.Err() == nil {
		_ = terminal.SetReadDeadline(time.Now().Add(keyPause)) // a terminal without deadlines ends its reads itself
		n, err := terminal.Read(typed)
		if n > 0 {
			pressed(string(typed[:n]))
		} else if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}
