package state

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// Decimal is a Python decimal.Decimal, as text: "1.10", "-0", "1E+2",
// "Infinity", "NaN", "sNaN12".
type Decimal string

var (
	decimalNumber  = lazyregexp.New(`^([+-]?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d{1,18}))?$`)
	decimalSpecial = lazyregexp.New(`^-?(Infinity|s?NaN(?:[1-9]\d*)?)$`)
)

// maxDecimalExponent is Python's limit of the exponent.
const maxDecimalExponent = 999_999_999_999_999_999

// form returns the text in the form that Python prints, so that Go and Python compute the same
// hash.
func (d Decimal) form() (Kind, any, error) {
	if decimalSpecial().MatchString(string(d)) {
		return KindDecimal, string(d), nil
	}
	parts := decimalNumber().FindStringSubmatch(string(d))
	if parts == nil {
		return "", nil, fmt.Errorf("%.40q is not a Decimal", string(d))
	}
	exponent, _ := strconv.ParseInt("0"+strings.TrimLeft(parts[4], "+-"), 10, 64)
	if strings.HasPrefix(parts[4], "-") {
		exponent = -exponent
	}
	exponent -= int64(len(parts[3]))
	digits := strings.TrimLeft(parts[2]+parts[3], "0")
	if digits == "" {
		digits = "0"
	}
	sign := strings.TrimPrefix(parts[1], "+")
	adjusted := exponent + int64(len(digits)) - 1
	if adjusted > maxDecimalExponent || adjusted < -maxDecimalExponent {
		return "", nil, fmt.Errorf("the exponent of the Decimal %.40q is out of Python's range", string(d))
	}
	return KindDecimal, sign + decimalText(digits, exponent, adjusted), nil
}

// decimalText places the point and the exponent according to the specification of decimal
// arithmetic.
func decimalText(digits string, exponent, adjusted int64) string {
	switch {
	case exponent == 0:
		return digits
	case exponent < 0 && adjusted >= -6:
		whole := int64(len(digits)) + exponent
		if whole <= 0 {
			return "0." + strings.Repeat("0", int(-whole)) + digits
		}
		return digits[:whole] + "." + digits[whole:]
	}
	if len(digits) > 1 {
		digits = digits[:1] + "." + digits[1:]
	}
	return fmt.Sprintf("%sE%+d", digits, adjusted)
}

// maxRatExponent limits the work of [Decimal.Rat] for a short text.
const maxRatExponent = 100_000

// Rat returns the exact number. It returns an error for infinities, NaNs and exponents beyond
// 100,000.
func (d Decimal) Rat() (*big.Rat, error) {
	parts := decimalNumber().FindStringSubmatch(string(d))
	if parts == nil {
		return nil, fmt.Errorf("state: the Decimal %.40q is not a finite number", string(d))
	}
	if exponent, _ := strconv.Atoi(parts[4]); exponent > maxRatExponent || exponent < -maxRatExponent {
		return nil, fmt.Errorf("state: the exponent of the Decimal %.40q is more than %d", string(d), maxRatExponent)
	}
	r, ok := new(big.Rat).SetString(string(d))
	if !ok {
		return nil, fmt.Errorf("state: the Decimal %.40q is not a number", string(d))
	}
	return r, nil
}

func decimalOf(text string) (Decimal, error) {
	if _, _, err := Decimal(text).form(); err != nil {
		return "", err
	}
	return Decimal(text), nil
}

func complexOf(parts [2]float64) (complex128, error) { return complex(parts[0], parts[1]), nil }

func ratOf(parts [2]*big.Int) (*big.Rat, error) {
	if parts[0] == nil || parts[1] == nil || parts[1].Sign() <= 0 {
		return nil, errors.New("a fraction without a positive denominator")
	}
	return new(big.Rat).SetFrac(parts[0], parts[1]), nil
}
