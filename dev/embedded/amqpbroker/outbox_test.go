package amqpbroker

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A client with more messages than it reads in the time of a write keeps its connection as long as it reads.
func TestOnlySilentReadersLoseTheirConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, client := net.Pipe()
		defer client.Close()
		o := newOutbox()
		var ended error
		var running sync.WaitGroup
		running.Go(func() {
			ended = o.run(broker)
			broker.Close()
		})
		const parts = 10
		o.add(func(out []byte) []byte { return append(out, make([]byte, parts*writePart)...) })
		for range parts {
			time.Sleep(writeTimeout - time.Second)
			if _, err := io.ReadFull(client, make([]byte, writePart)); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		begun := time.Now()
		o.add(func(out []byte) []byte { return append(out, 1) })
		running.Wait()
		if !errors.Is(ended, os.ErrDeadlineExceeded) || time.Since(begun) != writeTimeout {
			t.Errorf("a client that reads nothing for %v ends with %v", time.Since(begun), ended)
		}
	})
}
