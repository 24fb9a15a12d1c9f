import unittest

from words import count


class CountTest(unittest.TestCase):
    def test_count(self):
        self.assertEqual(count("One two. one!"), [("one", 2), ("two", 1)])
