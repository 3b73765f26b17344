package wire

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func TestObserverSeesCallsBehindLostReply(t *testing.T) {
	server := miniredis.RunT(t)
	var seen atomic.Int32
	observer, err := NewObserver(time.Now, func(ScriptCall) { seen.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	client, far := net.Pipe()
	server.Server().ServeConn(observer.Conn(far))
	source := observer.scripts.bodies["parked"]
	call := fmt.Sprintf("*4\r\n$4\r\nEVAL\r\n$%d\r\n%s\r\n$1\r\n1\r\n$1\r\nk\r\n", len(source), source)
	if _, err := client.Write([]byte(strings.Repeat(call, 2))); err != nil { // returns once the server has read both
		t.Fatal(err)
	}
	_ = client.Close() // no reply arrives
	server.Close()     // waits for the server to run what it has read
	if n := seen.Load(); n != 2 {
		t.Errorf("the observer has seen %d calls, want both that the server has read", n)
	}
}
