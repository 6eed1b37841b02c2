package state

// Parse reads the content of a journal as Read reads a file.
func Parse(path string, content []byte) ([]Record, Recovery, error) {
	records, rec, _, err := parse(path, content)
	return records, rec, err
}
