package guard

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"

	"golang.org/x/net/http2"

	"github.com/msghandler/msghandler/test/must"
)

// written is what a client sends by a connection: every kind of frame that has to do with data, and others between.
func written(t *testing.T) []byte {
	t.Helper()
	all := bytes.NewBufferString(http2.ClientPreface)
	framer := http2.NewFramer(all, nil)
	headers := http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("headers"), EndHeaders: true}
	for _, err := range []error{
		framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}),
		framer.WriteHeaders(headers),
		framer.WriteData(1, false, []byte("first")),
		framer.WritePing(false, [8]byte{1}),
		framer.WriteDataPadded(1, false, []byte("padded"), []byte{0, 0, 0}),
		framer.WriteDataPadded(1, false, nil, []byte{0, 0}),
		framer.WriteData(3, true, []byte("other")),
		framer.WriteWindowUpdate(0, 10),
		framer.WriteData(1, true, nil),
		framer.WriteDataPadded(5, true, []byte("x"), []byte{}),
		framer.WriteRSTStream(7, http2.ErrCodeCancel),
	} {
		must.Succeed(t, err)
	}
	return all.Bytes()
}

func TestFramesAreFoundInAnyPieces(t *testing.T) {
	t.Parallel()
	all := written(t)
	want := map[uint32]string{1: "firstpadded", 3: "other", 5: "x"}
	for size := 1; size <= len(all); size++ {
		f := newFrames()
		got := map[uint32]string{}
		var ended []uint32
		for piece := range slices.Chunk(all, size) {
			if !f.scan(piece, func(stream uint32, data []byte) bool {
				if got[stream] += string(data); len(data) == 0 {
					ended = append(ended, stream)
				}
				return true
			}) {
				t.Fatal("the reader gave up")
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || !slices.Equal(ended, []uint32{3, 1, 5}) {
			t.Fatalf("in pieces of %d bytes: got %v, ended %v; want %v", size, got, ended, want)
		}
		if f.stream != 7 || f.left != 0 || f.have != 0 {
			t.Fatalf("in pieces of %d bytes: the frame ends at %+v", size, f)
		}
	}
}

// FuzzFrames: what no client would send is scanned to its end, and no data is seen that a reader of HTTP/2 does not
// see.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 5, 0, 8, 0, 0, 0, 1, 200, 1, 2, 3, 4}, uint8(3))
	f.Add([]byte{0, 0, 1, 0, 9, 0, 0, 0, 1, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, after []byte, size uint8) {
		all := append([]byte(http2.ClientPreface), after...)
		scanner := newFrames()
		got := map[uint32]string{}
		for piece := range slices.Chunk(all, int(size)+1) {
			scanner.scan(piece, func(stream uint32, data []byte) bool {
				got[stream] += string(data)
				return true
			})
		}
		framer := http2.NewFramer(io.Discard, bytes.NewReader(after))
		framer.AllowIllegalReads = true
		framer.SetMaxReadFrameSize(1 << 24)
		want := map[uint32]string{}
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				break
			}
			if data, is := frame.(*http2.DataFrame); is {
				want[data.StreamID] += string(data.Data())
			}
		}
		for stream, data := range want {
			if len(got[stream]) < len(data) || got[stream][:len(data)] != data {
				t.Fatalf("stream %d: got %q, want %q", stream, got[stream], data)
			}
		}
	})
}
