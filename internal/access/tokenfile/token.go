package tokenfile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

// Token is a line of the file:
//
//	NAME sha256:HEX created=TIME expires=TIME role=ROLE producers=GLOB,GLOB
//
// HEX is the SHA-256 hash of the token in hexadecimal digits. The fields after the hash are optional, in any order.
// TIME is a time of RFC 3339. Empty lines and lines that begin with # do not count.
type Token struct {
	Name string
	// Sum is the hash of the token.
	Sum [sha256.Size]byte
	// Created and Expires are zero where the line does not name them. A token without Expires does not expire.
	Created, Expires time.Time
	Role             access.Role
	// Producers are globs on names of producers; * is any text.
	Producers []string
}

// Expired says whether the token has expired.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// Fingerprint names the token's hash in a few characters, to compare two files.
func (t Token) Fingerprint() string { return hex.EncodeToString(t.Sum[:4]) }

// String returns the token as a line of the file.
func (t Token) String() string {
	line := t.Name + " " + hashMark + hex.EncodeToString(t.Sum[:])
	if !t.Created.IsZero() {
		line += " created=" + t.Created.UTC().Format(time.RFC3339)
	}
	if !t.Expires.IsZero() {
		line += " expires=" + t.Expires.UTC().Format(time.RFC3339)
	}
	if t.Role != access.NoRole {
		line += " role=" + t.Role.String()
	}
	if len(t.Producers) > 0 {
		line += " producers=" + strings.Join(t.Producers, ",")
	}
	return line
}

// Parse reads the content of a file. An error names the line and quotes nothing of it: the line may hold a token.
func Parse(content string) ([]Token, error) {
	var tokens []Token
	names, sums := map[string]int{}, map[[sha256.Size]byte]int{}
	number := 0
	for line := range strings.Lines(content) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t, err := parseLine(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", number, err)
		case names[t.Name] != 0:
			return nil, fmt.Errorf("line %d: the name is that of line %d; give each token a name of its own",
				number, names[t.Name])
		case sums[t.Sum] != 0:
			return nil, fmt.Errorf("line %d: the hash is that of line %d; remove either line", number, sums[t.Sum])
		}
		names[t.Name], sums[t.Sum] = number, number
		tokens = append(tokens, t)
	}
	return tokens, nil
}

const hashMark = "sha256:"

var (
	errFields = errors.New("a line is NAME sha256:HEX, then created=, expires=, role= and producers=; " +
		"let msghandler token new write the line")
	errHash = errors.New("the second field is not sha256: with 64 hexadecimal digits; " +
		"let msghandler token new write the line")
	errField = errors.New("a field is none of created=, expires=, role= and producers=")
	errTwice = errors.New("a field stands twice; remove either")
)

func parseLine(line string) (Token, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return Token{}, errFields
	}
	t := Token{Name: fields[0]}
	if err := CheckName(t.Name); err != nil {
		return Token{}, err
	}
	digits, hashed := strings.CutPrefix(fields[1], hashMark)
	sum, err := hex.DecodeString(digits)
	if !hashed || err != nil || len(sum) != len(t.Sum) {
		return Token{}, errHash
	}
	copy(t.Sum[:], sum)
	given := map[string]bool{}
	for _, field := range fields[2:] {
		key, value, _ := strings.Cut(field, "=")
		if given[key] {
			return Token{}, errTwice
		}
		given[key] = true
		if err := t.set(key, value); err != nil {
			return Token{}, err
		}
	}
	return t, nil
}

func (t *Token) set(key, value string) (err error) {
	switch key {
	case "created":
		t.Created, err = parseTime(value)
	case "expires":
		t.Expires, err = parseTime(value)
	case "role":
		t.Role, err = parseRole(value)
	case "producers":
		t.Producers = strings.Split(value, ",")
		for _, glob := range t.Producers {
			err = cmp.Or(err, access.CheckProducerGlob(glob))
		}
	default:
		err = errField
	}
	return err
}

func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if at = at.UTC(); err != nil || at.Year() < 1970 || at.Year() > 9999 { // others have no text of RFC 3339 in UTC
		return time.Time{}, errors.New("a time is not of RFC 3339; write a time such as 2027-01-31T00:00:00Z")
	}
	return at, nil
}

func parseRole(text string) (access.Role, error) {
	role, known := access.ParseRole(text)
	if !known {
		return access.NoRole, errors.New("the role is none of viewer, reader, operator and admin")
	}
	return role, nil
}

// longest is the longest name.
const longest = 100

// CheckName refuses a name that no token may have. The error does not quote the name, which may be a token by mistake.
func CheckName(name string) error {
	switch {
	case strings.HasPrefix(name, mark):
		return errors.New("the name begins with mh_, as tokens do; choose another name")
	case name == "" || len(name) > longest || strings.ContainsFunc(name, notNameRune) || notNameStart(rune(name[0])):
		return fmt.Errorf("the name of a token has 1 to %d of A-Z a-z 0-9 . _ -, and begins with a letter or a digit",
			longest)
	}
	return nil
}

func notNameRune(r rune) bool { return notNameStart(r) && !strings.ContainsRune("._-", r) }

func notNameStart(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
}
