package amqpbroker

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, frameHeartbeat, 0, nil))
	f.Add(appendMethod(nil, 1, channelOpen, encoder(nil).shortString("")))
	f.Add(appendContent(nil, 1, []byte{0, 0}, []byte("body"), minFrame))
	f.Add([]byte{1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(bytes.NewReader(data))
		var again []byte
		for {
			read, err := readFrame(r, minFrame)
			if err != nil {
				break
			}
			again = appendFrame(again, read.kind, read.channel, read.payload)
		}
		if !bytes.HasPrefix(data, again) {
			t.Errorf("read %x, which is not how it begins: %x", again, data)
		}
	})
}

func FuzzProperties(f *testing.F) {
	headers := table{
		{"text", stringValue("x")},
		{"x-death", arrayValue([]value{tableValue(table{{"count", intValue(1)}, {"queue", stringValue("q")}})})},
	}
	f.Add(properties{}.withHeaders(headers).encode())
	f.Add([]byte{0xff, 0xfc})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parseProperties(data)
		if err != nil {
			return
		}
		if again := p.encode(); !bytes.Equal(again, data) {
			t.Errorf("%x became %x", data, again)
		}
		for _, field := range p.headers() {
			field.value.plain()
		}
		q := &queue{name: "q"}
		dead := q.deadContent(&message{content: &content{properties: p}}, reasonExpired)
		if _, err := parseProperties(dead.encoded); err != nil {
			t.Errorf("not to be read any more once dead: %v", err)
		}
	})
}

// FuzzConnection feeds a broker arbitrary bytes after a proper handshake. The broker must neither panic nor hang.
func FuzzConnection(f *testing.F) {
	open := appendMethod(nil, 1, channelOpen, encoder(nil).shortString(""))
	declare := appendMethod(open, 1, queueDeclare, encoder(nil).u16(0).shortString("q").u8(0).u32(0))
	consume := appendMethod(slices.Clone(declare), 1, basicConsume,
		encoder(nil).u16(0).shortString("q").shortString("").u8(0).u32(0))
	publish := appendMethod(consume, 1, basicPublish, encoder(nil).u16(0).shortString("").shortString("q").u8(1))
	publish = appendContent(publish, 1, []byte{0, 0}, []byte("body"), minFrame)
	ack := appendMethod(slices.Clone(publish), 1, basicNack, encoder(nil).u64(1).u8(2))
	for _, seed := range [][]byte{open, declare, publish, ack, []byte("garbage")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := New(Config{Logger: slog.New(slog.DiscardHandler)})
		conn, err := b.Dial("", "")
		if err != nil {
			t.Fatal(err)
		}
		discarded := make(chan struct{})
		go func() {
			defer close(discarded)
			_, _ = io.Copy(io.Discard, conn)
		}()
		if err := conn.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Write(append(handshake(), data...))
		var slow net.Error
		if errors.As(err, &slow) && slow.Timeout() {
			t.Error("the broker hangs")
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		<-discarded
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// handshake is the client's side of the opening of a connection.
func handshake() []byte {
	b := []byte(protocolHeader)
	b = appendMethod(b, 0, connectionStartOK,
		encoder(nil).u32(0).shortString("PLAIN").longString("\x00guest\x00guest").shortString("en_US"))
	b = appendMethod(b, 0, connectionTuneOK, encoder(nil).u16(0).u32(minFrame).u16(0))
	return appendMethod(b, 0, connectionOpen, encoder(nil).shortString("/").shortString("").u8(0))
}

// simpleTopicMatches says the same as topicMatches in the plainest way.
func simpleTopicMatches(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return simpleTopicMatches(pattern[1:], key) || len(key) > 0 && simpleTopicMatches(pattern, key[1:])
	}
	return len(key) > 0 && (pattern[0] == "*" || pattern[0] == key[0]) && simpleTopicMatches(pattern[1:], key[1:])
}

func TestTopicMatches(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "#"}), 0, 7).Draw(t, "pattern")
		key := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", ""}), 0, 7).Draw(t, "key")
		if got, want := topicMatches(pattern, key), simpleTopicMatches(pattern, key); got != want {
			t.Fatalf("%q and %q: %v", pattern, key, got)
		}
	})
}

// A backlog gives its messages in the order of their positions, also after some were taken and put back.
func TestBacklogKeepsItsOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l backlog
		var want []uint64
		var taken []*message
		var last uint64
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 400).Draw(t, "steps") {
			switch {
			case step == 0:
				last++
				l.push(&message{position: last})
				want = append(want, last)
			case step == 1 && l.len() > 0:
				taken = append(taken, l.pop())
				want = want[1:]
			case step == 2 && len(taken) > 0:
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "put back")
				l.putBack(taken[i])
				want = append(want, taken[i].position)
				slices.Sort(want)
				taken = slices.Delete(taken, i, i+1)
			}
		}
		var got []uint64
		for l.len() > 0 {
			got = append(got, l.pop().position)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestTableKeepsUnknownEntries(t *testing.T) {
	t.Parallel()
	unknown := value("D\x02\x00\x00\x01\x3a") // a decimal
	original := table{{"a", stringValue("x")}, {"price", unknown}, {"n", intValue(-5)}, {"yes", boolValue(true)}}
	parsed, err := parseTable(original.encode()[4:])
	if err != nil || !reflect.DeepEqual(parsed, original) {
		t.Fatalf("got %v, %v", parsed, err)
	}
	changed := parsed.set("a", stringValue("y"))
	if s, _ := changed.stringOf("a"); s != "y" || len(changed) != len(original) {
		t.Errorf("changed to %v", changed)
	}
	if s, _ := parsed.stringOf("a"); s != "x" {
		t.Error("the original changed too")
	}
}
