package config

import (
	"slices"
	"strings"
)

// hint returns "; did you mean ...?" for an unknown key, or where to look when no key is similar.
func hint(name string) string {
	section, _, _ := strings.Cut(name, ".")
	if keys := named[section]; keys != nil {
		var last []string
		for _, k := range keys {
			for _, k := range withFile(k) {
				last = append(last, k.last())
			}
		}
		return "; there are " + section + "." + anyName + "." + strings.Join(last, ", .")
	}
	var names []string
	for _, k := range table {
		names = append(names, k.Name)
	}
	return nearest(name, names, ".", "; docs/reference/configuration.md lists them all")
}

func envHint(variable string, names []string) string {
	return nearest(variable, names, "_", "; docs/reference/configuration.md lists them all, as environment variables too")
}

// nearest finds the name with the fewest edits, or else a name with the same last part.
func nearest(name string, names []string, separator, none string) string {
	best, fewest := "", len(name)/3+1
	for _, candidate := range names {
		if d := edits(strings.ToLower(name), strings.ToLower(candidate)); d < fewest {
			best, fewest = candidate, d
		}
	}
	if best == "" {
		last := name[strings.LastIndex(name, separator)+1:]
		i := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, separator+last) })
		if i < 0 {
			return none
		}
		best = names[i]
	}
	return "; did you mean " + best + "?"
}

// edits counts the insertions, deletions and replacements that turn a into b (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
