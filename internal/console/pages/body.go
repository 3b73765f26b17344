package pages

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/msghandler/msghandler/internal/escape"
)

const (
	// maxPreview is how much of a body a page shows.
	maxPreview = 4 << 10
	// maxIndented bounds the bodies that are indented: for larger bodies the work is not worth the 4 KiB that a page
	// shows.
	maxIndented = 1 << 20
)

// content is what a page shows of the content of a message.
type content struct {
	// Hidden says why the headers and the body are not shown; empty: they are.
	Hidden  string
	Headers map[string]string
	Body    preview
	// LeftOut says that the body is not known, because it was too large for the archive.
	LeftOut bool
	// Page is the address of the page, and Forms the forms in which the page can show the body.
	Page  string
	Forms []string
}

// content is the content of a message for a reader, as far as the reader may see it.
func (p *Pages) content(r *http.Request, page string, headers map[string]string, body []byte) content {
	if hidden := p.hidesBodies(r); hidden != "" {
		return content{Hidden: hidden}
	}
	return content{
		Headers: headers, Body: previewOf(body, r.FormValue("as")), Page: page, Forms: []string{"json", "text", "hex"},
	}
}

// preview is the part of a body that a page shows.
type preview struct {
	Size int64
	As   string
	Text string
	Cut  bool
}

// previewOf shows a body in the requested form, or in the form that fits the body.
func previewOf(body []byte, as string) preview {
	p := preview{Size: int64(len(body)), As: as}
	isJSON := len(body) <= maxIndented && json.Valid(body)
	switch {
	case as == "json" && isJSON, as == "text", as == "hex":
	case isJSON:
		p.As = "json"
	case looksLikeText(body):
		p.As = "text"
	default:
		p.As = "hex"
	}
	switch p.As {
	case "json":
		p.Text, p.Cut = cut(indented(body))
	case "hex":
		// A line of sixteen bytes takes 79 characters of a dump.
		most := maxPreview / 79 * 16
		p.Cut = len(body) > most
		p.Text = hex.Dump(body[:min(len(body), most)])
	default:
		p.Text, p.Cut = cut(string(body[:min(len(body), maxPreview+utf8.UTFMax)]))
	}
	p.Text = escape.Lines(p.Text)
	return p
}

// indented indents valid JSON like json.Indent with two spaces, and stops after the part that a page shows. The
// indentation of a whole body grows with the square of its depth: some tens of kilobytes of brackets would need
// gigabytes.
func indented(body []byte) string {
	var b strings.Builder
	depth := 0
	turn := func(by int) {
		depth += by
		b.WriteString("\n" + strings.Repeat("  ", depth))
	}
	var quoted, escaped, opened bool // opened: a bracket was opened and is still empty
	for i := 0; i < len(body) && b.Len() <= maxPreview; i++ {
		c := body[i]
		switch {
		case quoted:
			b.WriteByte(c)
			quoted, escaped = c != '"' || escaped, c == '\\' && !escaped
			continue
		case strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		}
		switch closes := c == '}' || c == ']'; {
		case opened && !closes:
			turn(+1)
		case closes && !opened:
			turn(-1)
		}
		b.WriteByte(c)
		switch c {
		case ',':
			turn(0)
		case ':':
			b.WriteByte(' ')
		}
		quoted, opened = c == '"', c == '{' || c == '['
	}
	return b.String()
}

// looksLikeText says whether a body is text for the most part.
func looksLikeText(body []byte) bool {
	head := body[:min(len(body), maxPreview)]
	if len(head) < len(body) {
		for len(head) > 0 && !utf8.RuneStart(head[len(head)-1]) {
			head = head[:len(head)-1] // a character may be cut in two
		}
		head = head[:max(0, len(head)-1)]
	}
	return utf8.Valid(head) && !bytes.ContainsRune(head, 0)
}

// cut shortens a text to the length of a preview, between two characters.
func cut(text string) (string, bool) {
	if len(text) <= maxPreview {
		return text, false
	}
	end := maxPreview
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]), true
}
