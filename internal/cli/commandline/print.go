package commandline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// The forms of --output.
const (
	OutputTable = "table"
	OutputJSON  = "json"
	OutputYAML  = "yaml"
	// OutputName prints names alone, one a line. Only some commands have it.
	OutputName = "name"
)

// PrintDocument prints a document for programs, or the rows for people. JSON and YAML have the same names.
func (s *Session) PrintDocument(output string, document any, rows func() [][]string) error {
	switch output {
	case OutputJSON:
		return s.printJSON(document)
	case OutputYAML:
		return s.printYAML(document)
	}
	return s.PrintTable(rows())
}

// printYAML prints a document. All JSON is YAML: the document is encoded as JSON, read as YAML and written in blocks.
func (s *Session) printYAML(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(escaped(data, yamlEscape), &document); err != nil {
		return err
	}
	inBlocks(&document)
	var written bytes.Buffer
	encoder := yaml.NewEncoder(&written)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&document), encoder.Close()); err != nil {
		return err
	}
	return s.print(written.Bytes())
}

// escaped writes invisible runes as escapes: a terminal may obey such a rune, and YAML may refuse the rune or end a
// line there. In JSON these runes stand only in texts, where both JSON and YAML have escapes.
func escaped(document []byte, escape func(r rune) string) []byte {
	var b bytes.Buffer
	for _, r := range string(document) {
		if r > '~' && !unicode.IsPrint(r) {
			b.WriteString(escape(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

func yamlEscape(r rune) string { return fmt.Sprintf(`\U%08x`, r) }

// jsonEscape writes a rune as one or two units of UTF-16.
func jsonEscape(r rune) string {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

func inBlocks(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		inBlocks(child)
	}
}

// printJSON prints a document.
func (s *Session) printJSON(v any) error { return s.encodeJSON(v, "  ") }

// PrintJSONLine prints a document in a single line, after which others may follow.
func (s *Session) PrintJSONLine(v any) error { return s.Unpaged().encodeJSON(v, "") }

func (s *Session) encodeJSON(v any, indent string) error {
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	return s.print(escaped(document.Bytes(), jsonEscape))
}
