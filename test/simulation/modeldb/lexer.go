package modeldb

import (
	"strings"
	"unicode"
)

type tokenKind uint8

const (
	endToken tokenKind = iota
	wordToken
	numberToken
	textToken
	parameterToken
	symbolToken
)

// token is a piece of a statement. The text of a word is in lower case, that of a parameter its number.
type token struct {
	kind tokenKind
	text string
}

// symbols of more than one character.
var symbols = []string{"::", "<=", ">=", "<>", "!~", "||", "=>"}

// scan cuts statements into tokens.
func scan(text string) (tokens []token) {
	for text != "" {
		var t token
		var size int
		switch c := text[0]; {
		case unicode.IsSpace(rune(c)):
			size = 1
		case strings.HasPrefix(text, "--"):
			size = upTo(text, "\n")
		case strings.HasPrefix(text, "$$"):
			size = 2 + upTo(text[2:], "$$")
			t = token{textToken, text[2 : size-2]}
		case c == '\'':
			size = 1 + upTo(text[1:], "'")
			t = token{textToken, text[1 : size-1]}
		case c == '"':
			size = 1 + upTo(text[1:], `"`)
			t = token{wordToken, text[1 : size-1]}
		case c == '$':
			size = 1 + spanOf(text[1:], isDigit)
			t = token{parameterToken, text[1:size]}
		case isDigit(c):
			size = spanOf(text, isDigit)
			t = token{numberToken, text[:size]}
		case isLetter(c):
			size = spanOf(text, func(c byte) bool { return isLetter(c) || isDigit(c) })
			t = token{wordToken, strings.ToLower(text[:size])}
		default:
			t = token{symbolToken, text[:1]}
			for _, s := range symbols {
				if strings.HasPrefix(text, s) {
					t.text = s
				}
			}
			size = len(t.text)
		}
		if t.kind != endToken {
			tokens = append(tokens, t)
		}
		text = text[size:]
	}
	return tokens
}

// upTo is the length up to and with the end, or of all text.
func upTo(text, end string) int {
	if at := strings.Index(text, end); at >= 0 {
		return at + len(end)
	}
	return len(text)
}

func spanOf(text string, in func(byte) bool) int {
	for i := range len(text) {
		if !in(text[i]) {
			return i
		}
	}
	return len(text)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
